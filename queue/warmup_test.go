package queue_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/simulate"
	"github.com/waterclock/waterclock/throttle"
)

// warmed are policies with a warm-up of the queue, each tenant, each user or each domain.
func warmed(limit string, rule throttle.Rule) queue.Policies {
	rules := []throttle.Rule{rule}
	switch limit {
	case "queue":
		return queue.Policies{Queue: rules}
	case "tenant":
		return policies(queue.Policy{Tenant: rules})
	case "user":
		return policies(queue.Policy{User: rules})
	}
	return limitsOnly(map[string]queue.Limit{limit: {Key: []string{"keys.domain"}, Rules: rules}})
}

func midnight(t *testing.T, zone, date string) time.Time {
	t.Helper()
	where, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	at, err := time.ParseInLocation(time.DateOnly, date, where)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// startsByDay counts starts by the days of a zone, the first of which begins at an instant.
func startsByDay(all []queue.Info, begin time.Time) []int {
	days := make([]int, 8)
	for _, s := range all {
		for day := range days {
			if !s.Started.Before(begin.AddDate(0, 0, day)) && s.Started.Before(begin.AddDate(0, 0, day+1)) {
				days[day]++
			}
		}
	}
	return days
}

// On each of eight days exactly as many start as the window of the day says, from its midnight on: wherever the warm-up stands, where
// a day has 23 or 25 hours, and while leaders come and go. Between the midnights nobody runs: that would take minutes.
func TestAWarmupOverDays(t *testing.T) {
	t.Parallel()
	const rolling, calendar = "1:50/24h,2:100/24h,7:1000/24h", "1:50/day,2:100/day,7:1000/day"
	for _, test := range sample.Draw(t, []struct{ limit, windows, zone, from string }{
		{"domain", rolling, "America/Los_Angeles", "2000-01-05"},
		{"tenant", rolling, "Europe/Paris", "2000-03-23"}, // the fourth day has 23 hours
		{"user", calendar, "Europe/Paris", "2000-10-26"},  // and here 25
		{"queue", rolling, "", "2000-01-02"},
		{"domain", calendar, "Asia/Kolkata", "2000-01-05"},
	}, 1, 5) {
		t.Run(test.limit+" "+test.windows, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := redistest.Mini(t)
				rule := throttle.Warmup(test.from, test.windows, test.zone)
				setPolicies(t, client, warmed(test.limit, rule))
				begin := midnight(t, test.zone, test.from)
				time.Sleep(time.Until(begin))
				for n := range 300 {
					user := "teacher"
					if test.limit != "user" {
						user = fmt.Sprint("u", n)
					}
					enqueue(t, client, keyed(jobs("school", user, 10), "domain", "gmail.com")...)
				}
				var got recorder
				for day := range 8 { // a leader comes before midnight, and another one takes its place then; both leave, and one comes an hour later
					at := begin.AddDate(0, 0, day)
					time.Sleep(time.Until(at.Add(-20 * time.Second)))
					leaves := runWorker(t, client, &got, queue.WorkerConfig{})
					time.Sleep(time.Until(at) - time.Duration(day%3)*time.Second)
					stays := runWorker(t, client, &got, queue.WorkerConfig{})
					leaves()
					time.Sleep(time.Until(at.Add(20 * time.Second)))
					stays()
					time.Sleep(time.Until(at.Add(time.Hour - time.Second)))
					stop := runWorker(t, client, &got, queue.WorkerConfig{})
					time.Sleep(10 * time.Second)
					stop()
				}
				want := []int{50, 100, 100, 100, 100, 100, 1000, 1000}
				if days := startsByDay(got.all(), begin); !slices.Equal(days, want) {
					t.Errorf("%v start on eight days, want %v", days, want)
				}
				var events []throttle.Event
				for _, s := range got.all() {
					events = append(events, throttle.Event{Subject: "u", At: s.Started})
				}
				for _, v := range throttle.Verify(events, []throttle.Rule{rule}) {
					t.Error(v)
				}
				step := begin.AddDate(0, 0, 6) // day 7: 900 more than the day before, at once
				at := 0
				for _, s := range got.all() {
					if !s.Started.Before(step) && s.Started.Before(step.Add(time.Second)) {
						at++
					}
				}
				if at < 900 {
					t.Errorf("%d start within a second after the midnight of day 7", at)
				}
			})
		})
	}
}

// Who has used 50 of 50 gets 50 more on the second day, and not 100; a warm-up that is put in force in the place of a window
// knows what that has counted. A change of the policies on the way changes nothing.
func TestAWarmupKnowsWhatWasCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		setPolicies(t, client, warmed("user", throttle.Window(20, 24*time.Hour)))
		begin := midnight(t, "UTC", "2000-01-02")
		time.Sleep(time.Until(begin.Add(12 * time.Hour)))
		enqueue(t, client, jobs("school", "teacher", 500)...)
		var got recorder
		for _, step := range []struct {
			at    time.Duration
			rule  string
			total int
		}{
			{12 * time.Hour, "", 20},
			{13 * time.Hour, "1:50/24h,2:100/24h", 50},
			{24*time.Hour - time.Minute, "1:50/24h,2:100/24h,9:900/24h", 50},
			{24 * time.Hour, "", 100},
			{36*time.Hour - time.Minute, "", 100},
			{36 * time.Hour, "", 120}, // the first twenty are a day old
			{37 * time.Hour, "", 150}, // and those that came next
			{47 * time.Hour, "1:50/24h,2:100/24h", 150},
			{48 * time.Hour, "", 200},
		} {
			time.Sleep(time.Until(begin.Add(step.at)))
			if step.rule != "" {
				setPolicies(t, client, warmed("user", throttle.Warmup("2000-01-02", step.rule, "")))
			}
			stop := runWorker(t, client, &got, queue.WorkerConfig{})
			time.Sleep(10 * time.Second)
			if stop(); got.count() != step.total {
				t.Errorf("%v after the beginning: %d have started, want %d", step.at, got.count(), step.total)
			}
		}
	})
}

// Why and until when a job waits is told by the window of the day, across steps too; an override may be a warm-up.
func TestAWarmupIsExplained(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		inspector := newInspector(t, client, "push")
		setPolicies(t, client, warmed("tenant", throttle.Warmup("2000-01-02", "1:5/24h,3:10/24h,4:100/24h", "Europe/Paris")))
		begin := midnight(t, "Europe/Paris", "2000-01-02")
		time.Sleep(time.Until(begin.Add(10 * time.Hour)))
		receipts := enqueue(t, client, jobs("school", "teacher", 12)...)
		if step := begin.AddDate(0, 0, 2); receipts[4].Start.After(begin.Add(10*time.Hour+time.Second)) || !within(receipts[11].Start, step, 11*time.Hour) {
			t.Errorf("the fifth is expected at %v and the twelfth at %v, want about %v", receipts[4].Start, receipts[11].Start, step)
		}
		var got recorder
		work := func() {
			stop := runWorker(t, client, &got, queue.WorkerConfig{})
			time.Sleep(10 * time.Second)
			stop()
		}
		work()
		e, err := inspector.Explain(t.Context(), "school", "teacher")
		must(t, err)
		if b := e.Binding; b == nil || b.Rule != "window 5/24h (warm-up, day 1 of 4)" || b.Limit != 5 || b.Remaining != 0 || b.Zone != "Europe/Paris" ||
			!within(b.When, begin.Add(34*time.Hour), time.Second) {
			t.Errorf("%+v", b)
		}
		time.Sleep(time.Until(begin.Add(34*time.Hour + time.Minute)))
		work()
		e, err = inspector.Explain(t.Context(), "school", "teacher")
		must(t, err)
		if b := e.Binding; b == nil || b.Rule != "window 5/24h (warm-up, day 2 of 4)" || !e.Start.Equal(begin.AddDate(0, 0, 2)) {
			t.Errorf("%+v, next at %v", b, e.Start)
		}
		for date, want := range map[string]string{"2000-01-05": "window 7/24h (warm-up, begins 2000-01-05)", "1999-12-01": "window 9/24h (warm-up, done)"} {
			time.Sleep(time.Second)
			override(t, client, queue.Override{Limit: "tenant", Key: []string{"school"}, For: 100 * time.Hour, Rules: []throttle.Rule{throttle.Warmup(date, "1:7/24h,2:9/24h", "")}})
			if e, err = inspector.Explain(t.Context(), "school", "teacher"); err != nil || len(e.Rules) == 0 || e.Rules[0].Rule != want || e.Rules[0].Author != "ann" {
				t.Errorf("%+v, %v, want %s", e.Rules, err, want)
			}
		}
	})
}

func within(at, want time.Time, of time.Duration) bool {
	return !at.Before(want.Add(-of)) && !at.After(want.Add(of))
}

// A simulation knows warm-ups, from any instant on.
func TestAWarmupIsSimulated(t *testing.T) {
	t.Parallel()
	begin := midnight(t, "Europe/Paris", "2026-12-01")
	var offers []simulate.Offer
	for n := range 3000 {
		offers = append(offers, simulate.Offer{At: begin, Job: queue.Job{Tenant: "t", User: fmt.Sprint("u", n%7), Type: "x"}})
	}
	results, err := simulate.Run(simulate.Config{Policies: warmed("tenant", throttle.Warmup("2026-12-01", "1:50/24h,2:100/24h,7:1000/24h", "Europe/Paris"))}, offers)
	must(t, err)
	var all []queue.Info
	for _, r := range results {
		all = append(all, queue.Info{Started: r.Slot})
	}
	if days := startsByDay(all, begin); !slices.Equal(days, []int{50, 100, 100, 100, 100, 100, 1000, 1000}) {
		t.Errorf("%v start on eight days", days)
	}
}

// What is wrong with a warm-up of a program is said when the policies are set.
func TestWrongWarmups(t *testing.T) {
	t.Parallel()
	for want, rule := range map[string]throttle.Rule{
		"a warm-up has the same days for all":                                                    throttle.Warmup("2026-12-01", "1:50/24h", "user"),
		`from "soon": want a date such as 2026-12-01`:                                            throttle.Warmup("soon", "1:50/24h", ""),
		"the first day is 2; want 1, the day of from":                                            throttle.Warmup("2026-12-01", "2:50/24h", ""),
		"day 2 behind day 3; want the days in ascending":                                         throttle.Warmup("2026-12-01", "1:50/24h,3:90/24h,2:70/24h", ""),
		"policies.standard.user.rules[0]: throttle: invalid rule: warmup 2026-12-01: no windows": throttle.Warmup("2026-12-01", "", ""),
	} {
		if err := warmed("user", rule).Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
