package queue_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/simulate"
	"github.com/waterclock/waterclock/throttle"
)

// ofUsers are policies whose rules go by the clocks of users: marketing within legal bounds, at most two a day, and chat by their own hours
// alone.
func ofUsers() queue.Policies {
	perUser := []string{"tenant", "user"}
	return queue.Policies{
		Default:  "p",
		Policies: map[string]queue.Policy{"p": {Zone: "Europe/Paris", Quiet: "23:00-01:20"}},
		Limits: map[string]queue.Limit{
			"marketing": {Types: []string{"marketing"}, Key: perUser, Rules: []throttle.Rule{throttle.UserHours("06:00-21:00", ""), throttle.CalendarWindow(2, "day", "user")}},
			"chat":      {Types: []string{"chat"}, Key: perUser, Rules: []throttle.Rule{throttle.UserHours("", "")}},
		},
	}
}

// In a bubble it is 2000-01-01 00:00 UTC: 01:00 in Paris, 05:45 in Kathmandu, 09:00 in Tokyo.
func TestRulesGoByTheClocksOfUsers(t *testing.T) {
	t.Parallel()
	job := func(user, typ, zone, quiet string) queue.Job {
		return queue.Job{Tenant: "school", User: user, Type: typ, Zone: zone, Quiet: quiet}
	}
	offered := []queue.Job{
		job("tokyo", "marketing", "Asia/Tokyo", ""), job("tokyo", "marketing", "", ""), job("tokyo", "marketing", "", ""),
		job("nepal", "marketing", "Asia/Kathmandu", ""),
		job("early", "marketing", "Asia/Kathmandu", "21:00-06:30"), job("early", "chat", "", ""),
		job("usual", "marketing", "", ""), job("usual", "chat", "", ""),
		job("usual2", "chat", "", "00:30-01:10"), job("usual2", "code", "", ""),
	}
	wants := []time.Duration{
		0, 0, 15*time.Hour + 6*time.Hour, // two a day: the third after Tokyo's midnight, at six
		15 * time.Minute,                   // at six
		45 * time.Minute, 45 * time.Minute, // at half past six, when it is quiet no more
		5 * time.Hour, 20 * time.Minute, // at six in Paris, and at twenty past one
		10 * time.Minute, 0, // at ten past one
	}
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		setPolicies(t, client, ofUsers())
		var got recorder
		runWorker(t, client, &got, queue.WorkerConfig{})
		began := time.Now()
		for i, want := range wants { // an offer each: a later job of a user goes by what an earlier one has told
			time.Sleep(20 * time.Millisecond) // those before it have started
			r := enqueue(t, client, offered[i])[0]
			if at := r.Start.Sub(began).Round(time.Second); at != want {
				t.Errorf("job %d of %s: the receipt says after %v, want %v", i, offered[i].User, at, want)
			}
		}
		const watched = 50 * time.Minute
		time.Sleep(watched)
		seen := map[string][]time.Duration{}
		for _, start := range got.all() {
			key := start.User + start.Type
			seen[key] = append(seen[key], start.Started.Sub(began).Round(time.Second))
		}
		for i, want := range wants {
			key := offered[i].User + offered[i].Type
			if want > watched && len(seen[key]) == 0 {
				continue
			}
			if len(seen[key]) == 0 || seen[key][0] != want {
				t.Errorf("job %d of %s: started %v, want %v", i, offered[i].User, seen[key], want)
				continue
			}
			seen[key] = seen[key][1:]
		}
	})
	var offers []simulate.Offer
	begin := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, j := range offered {
		offers = append(offers, simulate.Offer{At: begin.Add(time.Duration(i) * time.Millisecond), Job: j})
	}
	results, err := simulate.Run(simulate.Config{Policies: ofUsers()}, offers)
	must(t, err)
	for i, r := range results {
		if at := r.Slot.Sub(begin).Round(time.Second); at != wants[i] {
			t.Errorf("job %d of %s: simulated after %v, want %v", i, r.User, at, wants[i])
		}
	}
}

// Who sets a clock moves the jobs that wait, earlier and later, and it is known until something else comes.
func TestSetUserMovesWhatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		p := ofUsers()
		p.Policies["p"] = queue.Policy{Zone: "Europe/Paris", User: []throttle.Rule{throttle.UserHours("06:00-21:00", "")}}
		setPolicies(t, client, p)
		inspector := newInspector(t, client, "push")
		var got recorder
		runWorker(t, client, &got, queue.WorkerConfig{})
		began := time.Now()
		enqueue(t, client, jobs("school", "ann", 1)...)
		enqueue(t, client, typed(jobs("school", "ben", 1), "marketing")...)
		time.Sleep(10 * time.Minute)
		if got.count() > 0 {
			t.Fatal("it has started by night")
		}
		for _, user := range []string{"ann", "ben"} { // it is 09:10 in Tokyo
			must(t, inspector.SetUser(t.Context(), "school", user, queue.UserClock{Zone: "Asia/Tokyo"}))
		}
		time.Sleep(50 * time.Millisecond)
		if got.count() != 2 {
			t.Errorf("%d have started by the new clock, want 2", got.count())
		}
		must(t, inspector.SetUser(t.Context(), "school", "ann", queue.UserClock{Zone: "Asia/Kathmandu", Quiet: "12:00-06:10"})) // 05:55 there
		enqueue(t, client, jobs("school", "ann", 1)...)
		clock, err := inspector.User(t.Context(), "school", "ann")
		if must(t, err); clock != (queue.UserClock{Zone: "Asia/Kathmandu", Quiet: "12:00-06:10"}) {
			t.Errorf("known: %+v", clock)
		}
		explained, err := inspector.Explain(t.Context(), "school", "ann")
		must(t, err)
		if at := explained.Start.Sub(began).Round(time.Second); at != 25*time.Minute { // ten past six in Kathmandu
			t.Errorf("explained: after %v", at)
		}
		time.Sleep(15*time.Minute - 100*time.Millisecond)
		if got.count() != 2 {
			t.Error("it has started before ten past six in Kathmandu")
		}
		time.Sleep(200 * time.Millisecond)
		if got.count() != 3 {
			t.Error("it has not started at ten past six in Kathmandu")
		}
	})
}

// A zone that there is none of is an error at the offer, with the nearest name, and nothing is offered.
func TestWrongClocks(t *testing.T) {
	t.Parallel()
	client := redistest.Mini(t)
	for _, test := range []struct{ zone, quiet, want string }{
		{"Europe/Pariss", "", `did you mean Europe/Paris?`},
		{"", "21-7", "want hours such as"},
	} {
		j := queue.Job{Tenant: "a", User: "u", Type: "x", Zone: test.zone, Quiet: test.quiet}
		_, err := newClient(t, client, "push").Enqueue(t.Context(), j)
		if !errors.Is(err, queue.ErrInvalidJob) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v", test, err)
		}
		err = newInspector(t, client, "push").SetUser(t.Context(), "a", "u", queue.UserClock{Zone: test.zone, Quiet: test.quiet})
		if !errors.Is(err, queue.ErrInvalidJob) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v", test, err)
		}
	}
	for text, want := range map[string]string{
		"queue: {rules: [{hours: user}]}":                                              "goes by the clock of a user",
		"policies: {p: {tenant: {rules: [{window: 3/day, zone: user}]}}}":              "goes by the clock of a user",
		"limits: {a: {key: keys.domain, rules: [{hours: user}]}}":                      "goes by the clock of a user",
		"policies: {p: {user: {rules: [{hours: user, zone: UTC}]}}}":                   "want zone: user, or none",
		"policies: {p: {user: {rules: [{hours: 08:00-09:00, zone: UTC, within: x}]}}}": "within is for hours: user",
		"policies: {p: {user: {zone: Pari}}}":                                          "did you mean",
		"policies: {p: {user: {quiet: night}}}":                                        "want hours such as",
	} {
		if _, err := queue.ParsePolicies("policies.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
