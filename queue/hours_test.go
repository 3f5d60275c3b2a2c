package queue_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// In a bubble it is 2000-01-01 00:00 UTC, a Saturday, and 05:45 in Kathmandu. These hours open half an hour later.
func kathmandu() throttle.Rule { return throttle.Hours("06:15-21:00", "", "Asia/Kathmandu") }

// Marketing waits until its hours open, whatever else its user gets: a code behind twenty such jobs starts at once.
func TestHoursHoldBackNoOtherType(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		setPolicies(t, client, limitsOnly(map[string]queue.Limit{
			"marketing": {Types: []string{"marketing"}, Key: []string{"tenant", "user"}, Rules: []throttle.Rule{kathmandu()}},
			"codes":     {Types: []string{"code"}, Key: []string{"tenant", "user"}, Rules: []throttle.Rule{throttle.Spacing(time.Second)}},
		}))
		var got recorder
		runWorker(t, client, &got, queue.WorkerConfig{})
		began := time.Now()
		opens := began.Add(30 * time.Minute)
		for _, r := range enqueue(t, client, typed(jobs("school", "teacher", 20), "marketing")...) {
			if !r.Start.Equal(opens) {
				t.Errorf("it may start at %s, want %s", r.Start.UTC(), opens.UTC())
			}
		}
		time.Sleep(time.Minute)
		offered := time.Now()
		enqueue(t, client, typed(jobs("school", "teacher", 1), "code")...)
		time.Sleep(5 * time.Millisecond)
		if got.count() != 1 {
			t.Fatalf("%d have started 5 ms after the code was offered, want the code", got.count())
		}
		if took := got.all()[0].Started.Sub(offered); took > 5*time.Millisecond {
			t.Errorf("the code took %v", took)
		}
		explained, err := newInspector(t, client, "push").Explain(t.Context(), "school", "teacher")
		must(t, err)
		if b := explained.Binding; b == nil || b.Rule != "hours 06:15-21:00 Asia/Kathmandu" || b.Name != "marketing" || !b.When.Equal(opens) || !explained.Start.Equal(opens) {
			t.Errorf("explained as %+v, bound by %+v", explained, b)
		}
		time.Sleep(time.Until(opens) - time.Millisecond)
		if got.count() != 1 {
			t.Errorf("%d have started before the hours open", got.count())
		}
		time.Sleep(10 * time.Millisecond)
		if got.count() != 21 {
			t.Errorf("%d have started when the hours open, want 21", got.count())
		}
		for _, start := range got.all()[1:] {
			if !start.Slot.Equal(opens) {
				t.Errorf("a slot at %s", start.Slot)
			}
		}
	})
}

// The hours of a user, a tenant and the queue hold as well, and the jobs start at the instant at which the last of them opens.
func TestHoursOfEverybody(t *testing.T) {
	t.Parallel()
	utc := throttle.Hours("00:10-00:20", "", "UTC")
	for name, p := range sample.Cases(t, map[string]queue.Policies{
		"queue":  {Queue: []throttle.Rule{utc}},
		"tenant": policies(queue.Policy{Tenant: []throttle.Rule{utc}}),
		"user":   policies(queue.Policy{User: []throttle.Rule{utc}}),
		"limit":  limitsOnly(map[string]queue.Limit{"all": {Rules: []throttle.Rule{utc}}}),
	}, 1, 4) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := redistest.Mini(t)
				setPolicies(t, client, p)
				var got recorder
				runWorker(t, client, &got, queue.WorkerConfig{})
				began := time.Now()
				enqueue(t, client, append(jobs("a", "u", 3), jobs("b", "v", 3)...)...)
				time.Sleep(15 * time.Minute)
				enqueue(t, client, jobs("a", "u", 2)...)
				time.Sleep(4*time.Minute + 59*time.Second + 996*time.Millisecond) // within the last grace nothing starts
				enqueue(t, client, jobs("a", "u", 1)...)
				time.Sleep(24*time.Minute - 9*time.Second)
				starts := got.all()
				if len(starts) != 8 {
					t.Fatalf("%d have started, want 8", len(starts))
				}
				for i, start := range starts {
					if at := start.Started.Sub(began); i < 6 && (at < 10*time.Minute || at > 10*time.Minute+5*time.Millisecond) || i >= 6 && (at < 15*time.Minute || at > 15*time.Minute+5*time.Millisecond) {
						t.Errorf("job %d started after %v", i, at)
					}
				}
			})
		})
	}
}

// A window by the calendar begins anew at midnight in its zone.
func TestCalendarWindowsOfAQueue(t *testing.T) {
	t.Parallel()
	sample.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		// On Cape Verde it is 23:00 on Friday, the last day of the year.
		setPolicies(t, client, policies(queue.Policy{User: []throttle.Rule{throttle.CalendarWindow(2, "day", "Atlantic/Cape_Verde")}}))
		var got recorder
		runWorker(t, client, &got, queue.WorkerConfig{})
		began := time.Now()
		receipts := enqueue(t, client, jobs("a", "u", 4)...)
		if midnight := began.Add(time.Hour); !receipts[2].Start.Equal(midnight) {
			t.Errorf("the third may start at %s, want %s", receipts[2].Start.UTC(), midnight.UTC())
		}
		time.Sleep(time.Hour - time.Millisecond)
		if got.count() != 2 {
			t.Errorf("%d have started before midnight, want 2", got.count())
		}
		time.Sleep(5 * time.Millisecond)
		if got.count() != 4 {
			t.Errorf("%d have started after midnight, want 4", got.count())
		}
	})
}

// The time in which hours are closed does not count for max_wait, unless the policy says so; it does for a job's own latest start.
func TestClosedTimeIsNoLateness(t *testing.T) {
	t.Parallel()
	for _, counts := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			client := redistest.Mini(t)
			setPolicies(t, client, policies(queue.Policy{
				User: []throttle.Rule{kathmandu(), throttle.Spacing(4 * time.Minute)}, MaxWait: 10 * time.Minute, ClosedCounts: counts,
			}))
			var got recorder
			runWorker(t, client, &got, queue.WorkerConfig{})
			began := time.Now()
			all := jobs("a", "u", 4) // they could start after 30, 34, 38 and 42 minutes
			late := jobs("a", "v", 1)
			late[0].StartBy = began.Add(20 * time.Minute)
			receipts := enqueue(t, client, append(all, late...)...)
			if r := receipts[4]; r.Status != queue.Dropped || r.Reason != queue.ReasonExpired {
				t.Errorf("a job that starts too late by its own word is %v %v", r.Status, r.Reason)
			}
			if counts {
				if r := receipts[0]; r.Status != queue.Dropped || r.Reason != queue.ReasonExpired {
					t.Errorf("closed time counts, and a job that waits for half an hour is %v %v", r.Status, r.Reason)
				}
				return
			}
			if want := began.Add(40 * time.Minute); !receipts[0].StartBy.Equal(want) {
				t.Errorf("the latest start is %s, want %s", receipts[0].StartBy.UTC(), want.UTC())
			}
			time.Sleep(45 * time.Minute)
			if got.count() != 3 {
				t.Errorf("%d have started, want 3", got.count())
			}
			drops, err := newInspector(t, client, "push").Drops(t.Context(), 10)
			must(t, err)
			expired := 0
			for _, drop := range drops {
				if drop.User == "u" && drop.Reason == queue.ReasonExpired {
					expired++
				}
			}
			if expired != 1 {
				t.Errorf("dropped: %+v", drops)
			}
		})
	}
}

// What is wrong with local times in policies is said with its line, and what would be right.
func TestWrongHoursInPolicies(t *testing.T) {
	t.Parallel()
	for rules, want := range map[string]string{
		"{hours: 08:00-21:00, zone: Europe/Pariss}":                                    `policies.yaml:2: queue.rules[0]: hours 08:00-21:00 Europe/Pariss: there is no zone "Europe/Pariss"; did you mean Europe/Paris?`,
		"{hours: 08:00-21:00}":                                                         `in which zone? want one, such as zone: Europe/Paris`,
		"{window: 3/day}":                                                              `in which zone?`,
		"{window: 3/1m, zone: UTC}":                                                    `window has no zone: only hours and warmup have, and windows such as {window: 3/day, zone: Europe/Paris}`,
		"{window: 3/year, zone: UTC}":                                                  `window "3/year": want COUNT/PERIOD`,
		"{hours: 8-21, zone: UTC}":                                                     `hours "8-21": want hours such as 08:00-21:00`,
		"{hours: 08:00-21:00, days: weekdays, zone: UTC}":                              `days "weekdays": want days such as mon-fri`,
		"{hours: 08:00-21:00, holidays: [christmas], zone: UTC}":                       `holiday "christmas": want a date such as 2026-12-25`,
		"{hours: 08:00-21:00, zone: UTC, count_dropped: true}":                         `hours count nothing`,
		"{spacing: 3s, days: mon-fri}":                                                 `spacing has no days and no holidays`,
		"{hours: 08:00-21:00, zone: UTC}, {hours: 08:00-09:00, zone: UTC, over: drop}": `queue.rules[1]: hours beside each other are alternatives`,
	} {
		_, err := queue.ParsePolicies("policies.yaml", []byte("queue:\n  rules: ["+rules+"]\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", rules, err, want)
		}
	}
}
