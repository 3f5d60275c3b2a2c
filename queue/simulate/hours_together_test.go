package simulate_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/simulate"
	"github.com/waterclock/waterclock/throttle"
)

// More users than are read at a time have one instant from which on they may be called: each is, in turn.
func TestManyUsersWhoseHoursOpenTogether(t *testing.T) {
	const users = 5000
	policies := queue.Policies{Default: "p", Policies: map[string]queue.Policy{"p": {
		Tenant: []throttle.Rule{throttle.Leak(100, time.Second)},
		User:   []throttle.Rule{throttle.Hours("08:00-21:00", "", "UTC")},
	}}}
	night := time.Date(2026, 11, 26, 3, 0, 0, 0, time.UTC)
	var offers []simulate.Offer
	for i := range users {
		offers = append(offers, simulate.Offer{At: night, Job: queue.Job{Tenant: "school", User: fmt.Sprint("u", i), Type: "call"}})
	}
	results, err := simulate.Run(simulate.Config{Policies: policies}, offers)
	if err != nil {
		t.Fatal(err)
	}
	last, opens := time.Time{}, night.Add(5*time.Hour)
	for _, r := range results {
		if r.Slot.Before(opens) {
			t.Fatalf("%s starts at %v: %s", r.User, r.Slot, r.Reason)
		}
		if r.Slot.After(last) {
			last = r.Slot
		}
	}
	if took, want := last.Sub(opens), (users-1)*10*time.Millisecond; took != want {
		t.Errorf("all have started after %v, want %v", took, want)
	}
}
