package simulate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/simulate"
	"github.com/waterclock/waterclock/throttle"
)

// The door of a simulation knows the capacities of tenants, users and limits by name: what waits, until it has started.
func TestCapacities(t *testing.T) {
	p := queue.Policies{
		Default: "p", Policies: map[string]queue.Policy{"p": {User: []throttle.Rule{throttle.Window(1, time.Hour)}, UserCapacity: 2, Capacity: 5}},
		Limits: map[string]queue.Limit{"domain": {Key: []string{"keys.domain"}, Capacity: 3}},
	}
	begin := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
	var offers []simulate.Offer
	offer := func(at time.Duration, user, domain string, n int) {
		for range n {
			j := queue.Job{ID: fmt.Sprint(len(offers)), Tenant: "t", User: user, Type: "x"}
			if domain != "" {
				j.Keys = map[string]string{"domain": domain}
			}
			offers = append(offers, simulate.Offer{At: begin.Add(at), Job: j})
		}
	}
	offer(0, "ann", "d", 3)
	offer(0, "bob", "d", 2)
	offer(0, "bob", "", 1)
	offer(0, "cid", "", 2)
	offer(time.Minute, "ann", "d", 2) // one of each user has started
	results, err := simulate.Run(simulate.Config{Policies: p}, offers)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range results {
		got = append(got, strings.TrimSpace(string(r.Reason)+" "+strings.TrimPrefix(r.Rule, "capacity of ")))
	}
	const want = "||full user ann||full limit domain (d)||" + "|full|" + "|full user ann"
	if text := strings.Join(got, "|"); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}
