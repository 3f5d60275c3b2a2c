package notify_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/queuetest"
)

// A retry of an older message never comes after a newer one with its collapse key: neither after
// one that was delivered while it waited, nor after one that came and went while the older one had
// no answer. Messages without the key, under another one and to other devices are sent.
func TestTheNewestUnderACollapseKey(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	failed, none := notifytest.Reason(500, "InternalServerError"), &notifytest.Answer{Hang: true}
	for name, test := range map[string]struct {
		older, newer    string // collapse keys
		other           bool   // the newer message is for another device
		trouble, second *notifytest.Answer
		want            string // titles in the order of delivery
	}{
		"failed":              {older: "score", newer: "score", trouble: failed, want: "2-0"},
		"no answer":           {older: "score", newer: "score", trouble: none, want: "2-0"},
		"the newer fails too": {older: "score", newer: "score", trouble: failed, second: failed, want: "2-0"},
		"no key":              {trouble: failed, want: "2-0 1-0"},
		"another key":         {older: "score", newer: "weather", trouble: failed, want: "2-0 1-0"},
		"another device":      {older: "score", newer: "score", other: true, trouble: failed, want: "2-0 1-0"},
	} {
		for _, devices := range []int{1, 2} {
			t.Run(fmt.Sprint(name, " ", devices), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := openCrowd(t, "apns")
					s := newSchool(t, c.sender, notify.HandlerConfig{Shared: true}, queue.Policy{})
					tried := make(map[string]bool)
					c.host.Answer(func(r notifytest.Received) *notifytest.Answer {
						if r.Device != c.name(0) || tried[r.Title] {
							return nil
						}
						tried[r.Title] = true
						if r.Title == "1-0" {
							return test.trouble
						}
						return test.second
					})
					older, newer := []notify.Target{c.target(0)}, []notify.Target{c.target(0)}
					if test.other {
						newer[0] = c.target(5)
					}
					if devices == 2 {
						older, newer = append(older, c.target(1)), append(newer, c.target(2))
					}
					s.notify("fan", notify.Message{Title: "1-0", CollapseKey: test.older, Targets: older})
					time.Sleep(2 * time.Second)
					s.notify("fan", notify.Message{Title: "2-0", CollapseKey: test.newer, Targets: newer})
					time.Sleep(5 * time.Minute)
					got := ""
					for _, r := range c.host.Received() {
						if r.Status == 200 && r.Device != c.name(1) && r.Device != c.name(2) {
							got += " " + r.Title
						}
					}
					if got != " "+test.want || s.unfinished() != 0 || s.stats().Done != 2 {
						t.Errorf("delivered%s, want %s; %+v", got, test.want, s.stats())
					}
				})
			})
		}
	}
}

// What is known of the newest message lives longer only if an older one waits for its retry.
func TestTheNewestIsForgotten(t *testing.T) {
	redistest.Each(t, func(t *testing.T, rdb redis.UniversalClient) {
		fail := false
		h, err := notify.NewHandler(fullSender(func(context.Context, notify.Message, notify.Target) notify.Outcome {
			if fail {
				return broken
			}
			return ok
		}), notify.HandlerConfig{Redis: rdb})
		must(t, err)
		attempt := func(second int) (life time.Duration) {
			job, err := notify.NewJob("t", "u", notify.Message{Title: "a", CollapseKey: "k", Targets: []notify.Target{{Token: "d"}}})
			must(t, err)
			task, err := queue.NewTask(job)
			must(t, err)
			ctx := queuetest.NewContext(t.Context(), queue.Info{ID: fmt.Sprint(second), Queue: "q", Tenant: "t", User: "u", Offered: time.Unix(int64(second), 0), Attempt: 1, MaxAttempts: 2})
			_ = h.ProcessTask(ctx, task)
			keys := rdb.Keys(t.Context(), "wc:{q}:notify:newest:*").Val()
			if len(keys) != 1 {
				t.Fatalf("keys %q", keys)
			}
			return rdb.PTTL(t.Context(), keys[0]).Val()
		}
		hours := func(d time.Duration) float64 { return (d + time.Minute).Truncate(time.Hour).Hours() }
		if got := hours(attempt(1)); got != 1 {
			t.Errorf("after a delivery: %v h", got)
		}
		fail = true
		if got := hours(attempt(2)); got != 7*24 {
			t.Errorf("after a failure: %v h", got)
		}
		fail = false
		if got := hours(attempt(3)); got != 7*24 {
			t.Errorf("after a delivery that follows a failure: %v h", got)
		}
	})
}
