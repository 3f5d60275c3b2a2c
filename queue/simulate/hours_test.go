package simulate_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/simulate"
	"github.com/waterclock/waterclock/throttle"
)

// The zones of a tenant's users, from the first to the last that greets a new year.
var zones = []string{
	"Pacific/Kiritimati", "Pacific/Apia", "Pacific/Auckland", "Pacific/Norfolk", "Australia/Lord_Howe", "Australia/Adelaide", "Asia/Tokyo", "Australia/Eucla",
	"Asia/Shanghai", "Asia/Bangkok", "Asia/Yangon", "Asia/Kathmandu", "Asia/Kolkata", "Asia/Karachi", "Asia/Tehran", "Africa/Nairobi", "Africa/Cairo",
	"Europe/Paris", "Europe/London", "Atlantic/Azores", "America/Sao_Paulo", "America/New_York", "America/Los_Angeles", "Pacific/Honolulu",
}

// For a year, a tenant calls users in 24 zones: nobody at night, each once a day of his own at most, and nobody later than the hours, that day's
// call and the tenant's leak explain.
func TestAYearOfTwentyFourZones(t *testing.T) {
	const hours, holidays = "08:00-21:00", "12-25"
	each := make(map[string]queue.Limit, len(zones))
	for _, zone := range zones {
		each[zone] = queue.Limit{Rules: []throttle.Rule{throttle.Hours(hours, "mon-fri", zone, holidays), throttle.Hours("10:00-20:00", "sat", zone, holidays)}}
	}
	perUser := make(map[string]queue.Limit, len(zones))
	for _, zone := range zones {
		perUser[zone+",*"] = queue.Limit{Rules: []throttle.Rule{throttle.CalendarWindow(1, "day", zone)}}
	}
	leak := throttle.Leak(1, 10*time.Second)
	policies := queue.Policies{
		Default: "p", Policies: map[string]queue.Policy{"p": {Tenant: []throttle.Rule{leak}}},
		Limits: map[string]queue.Limit{
			"hours": {Key: []string{"keys.zone"}, Types: []string{"call"}, Each: each, Rules: []throttle.Rule{throttle.Hours("00:00-24:00", "", "UTC")}},
			"daily": {Key: []string{"keys.zone", "tenant", "user"}, Types: []string{"call"}, Each: perUser, Rules: []throttle.Rule{throttle.CalendarWindow(1, "day", "UTC")}},
		},
	}
	rnd := rand.New(rand.NewPCG(26, 24))
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var offers []simulate.Offer
	for range sample.Size(2_000, 8_000, 40_000) {
		zone := zones[rnd.IntN(len(zones))]
		offers = append(offers, simulate.Offer{
			At:  begin.Add(time.Duration(rnd.Int64N(int64(365 * 24 * time.Hour)))),
			Job: queue.Job{Tenant: "school", User: fmt.Sprint(zone, " ", rnd.IntN(30)), Type: "call", Keys: map[string]string{"zone": zone}},
		})
	}
	results, err := simulate.Run(simulate.Config{Policies: policies}, offers)
	if err != nil {
		t.Fatal(err)
	}
	calls := make(map[string][]throttle.Event)
	var slots []throttle.Event
	for _, r := range results {
		if r.Slot.IsZero() {
			t.Fatalf("%+v never starts: %s %s", r.Offer, r.Reason, r.Rule)
		}
		zone := r.Keys["zone"]
		calls[zone] = append(calls[zone], throttle.Event{Subject: r.User, At: r.Slot.Add(time.Duration(rnd.Int64N(int64(5 * time.Millisecond))))})
		slots = append(slots, throttle.Event{Subject: "school", At: r.Slot})
	}
	for _, zone := range zones {
		rules := append(each[zone].Rules, throttle.CalendarWindow(1, "day", zone))
		for i, v := range throttle.Verify(calls[zone], rules) {
			if i < 3 {
				t.Error(zone, v)
			}
		}
	}
	for _, v := range throttle.Verify(slots, []throttle.Rule{leak}) {
		t.Error(v)
	}
	explained(t, results)
}

// explained checks that each job started as soon as it might: from the first instant on at which it could, by the clock of its zone and
// by its user's earlier calls, the leak was never free for longer than it takes for one start.
func explained(t *testing.T, results []simulate.Result) {
	t.Helper()
	used := make(map[string]bool) // user and day
	for _, r := range results {
		zone, _ := time.LoadLocation(r.Keys["zone"])
		used[r.User+r.Slot.In(zone).Format(time.DateOnly)] = true
	}
	late := 0
	for _, r := range results {
		zone, _ := time.LoadLocation(r.Keys["zone"])
		waited := time.Duration(0) // in which it might have started
		for at := r.At.Truncate(time.Minute).Add(time.Minute); at.Before(r.Slot); at = at.Add(time.Minute) {
			local := at.In(zone)
			from, to := 8, 21
			if local.Weekday() == time.Saturday {
				from, to = 10, 20
			}
			open := local.Weekday() != time.Sunday && local.Hour() >= from && local.Hour() < to && local.Format("01-02") != "12-25"
			if open && !used[r.User+local.Format(time.DateOnly)] {
				waited += time.Minute
			}
		}
		if waited > 10*time.Minute { // sixty others of its zone at most open together with it
			if late++; late <= 3 {
				t.Errorf("offered at %s, %s was called at %s: %v later than hours and calls explain", r.At.In(zone), r.User, r.Slot.In(zone), waited)
			}
		}
	}
}
