package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// shownLimits are limits of which each test uses some.
func shownLimits() queue.Policies {
	return limitsOnly(map[string]queue.Limit{
		"all":   {Rules: []throttle.Rule{throttle.Window(1000, time.Hour)}, Counts: "jobs"},
		"calls": {Types: []string{"call"}, Concurrency: queue.Concurrency{Jobs: 2}},
		"domain": {
			Key: []string{"keys.domain"}, Rules: []throttle.Rule{throttle.Window(4, time.Hour), throttle.Window(1, time.Hour).AsShadow()},
			Each: map[string]queue.Limit{"big.example": {Rules: []throttle.Rule{throttle.Window(100, time.Hour)}}, "*.free": {Unlimited: true}},
		},
	})
}

// The limits as they are: how full each key is, what waits and runs for it, from when on it lets the next job start,
// and whether it is paused.
func TestLimitsAreShown(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		inspector := newInspector(t, client, "push")
		setPolicies(t, client, shownLimits())
		runWorker(t, client, asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			if task.Type() == "call" {
				<-ctx.Done()
			}
			return nil
		}), queue.WorkerConfig{})
		must(t, inspector.Pause(t.Context(), queue.Pause{Scope: queue.ScopeLimit, Limit: "domain", Key: "down%2Cexample", For: 30 * time.Minute}))
		began := time.Now()
		enqueue(t, client, keyed(jobs("a", "u", 6), "domain", "small.example")...)
		enqueue(t, client, keyed(jobs("b", "u", 3), "domain", "small.example")...)
		enqueue(t, client, keyed(jobs("b", "v", 2), "domain", "down,example")...)
		enqueue(t, client, keyed(jobs("b", "v", 2), "domain", "x.free")...)
		enqueue(t, client, typed(jobs("c", "u", 3), "call")...)
		time.Sleep(time.Minute)

		now, err := inspector.Limits(t.Context(), 10)
		must(t, err)
		if !now.Whole || now.Now.Sub(began) < time.Minute {
			t.Errorf("%v, %d lanes, all: %v", now.Now, now.Looked, now.Whole)
		}
		var got []string
		for _, l := range now.Limits {
			got = append(got, fmt.Sprintf("%s %v by %v: %d keys, %d in %d lanes, %d run, %d paused", l.Name, l.Rules, l.Key, l.Known, l.Waiting, l.Lanes, l.Running, l.Paused))
			for _, k := range l.Keys {
				next := "when one ends"
				if !k.Next.IsZero() {
					next = k.Next.Sub(began).Round(time.Second).String()
				}
				got = append(got, fmt.Sprintf("  %q %.2f full, %d in %d lanes, %d run, next %s, paused %v", k.Key, k.Full, k.Waiting, k.Lanes, k.Running, next, !k.Paused.IsZero()))
			}
		}
		want := []string{
			"all [window 1000/1h] by []: 1 keys, 8 in 4 lanes, 2 run, 0 paused",
			`  "" 0.01 full, 8 in 4 lanes, 2 run, next 1m0s, paused false`,
			"calls [concurrency 2] by []: 1 keys, 1 in 1 lanes, 2 run, 0 paused",
			`  "" 1.00 full, 1 in 1 lanes, 2 run, next when one ends, paused false`,
			"domain [window 4/1h window 1/1h] by [keys.domain]: 3 keys, 7 in 3 lanes, 0 run, 1 paused",
			`  "small.example" 1.00 full, 5 in 2 lanes, 0 run, next 1h0m0s, paused false`,
			`  "down%2Cexample" 0.00 full, 2 in 1 lanes, 0 run, next 30m0s, paused true`,
			`  "big.example" 0.00 full, 0 in 0 lanes, 0 run, next 1m0s, paused false`,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		time.Sleep(2 * time.Hour)
		now, err = inspector.Limits(t.Context(), 10)
		must(t, err)
		if l := now.Limits[2]; l.Blocked < time.Hour || now.Limits[0].Blocked > 0 {
			t.Errorf("domain has held back for %v, all for %v", l.Blocked, now.Limits[0].Blocked)
		}
	})
}

// Without limits by name there is nothing to show.
func TestNoLimitsAreShown(t *testing.T) {
	t.Parallel()
	inspector := newInspector(t, redistest.Mini(t), "push")
	now, err := inspector.Limits(t.Context(), 10)
	if err != nil || len(now.Limits) != 0 || now.Now.IsZero() {
		t.Errorf("%+v, %v", now, err)
	}
}

// However many keys and lanes there are, so much is read, and it is said that it is not all.
func TestLimitsReadABoundedPart(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	setPolicies(t, client, shownLimits())
	var all []queue.Job
	for i := range 6000 {
		job := queue.Job{Tenant: fmt.Sprint("t", i%3), User: fmt.Sprint("u", i), Type: "mail", Keys: map[string]string{"domain": fmt.Sprintf("d%04d.example", i)}}
		all = append(all, job)
	}
	for from := 0; from < len(all); from += 500 {
		enqueue(t, client, all[from:from+500]...)
	}
	counted := &redistest.Counter{}
	client.AddHook(counted)
	now, err := newInspector(t, client, "push").Limits(t.Context(), 20)
	must(t, err)
	if n := counted.Take(); n > 1100 {
		t.Errorf("%d commands", n)
	}
	domain := now.Limits[2]
	if now.Whole || now.Looked != 999 || domain.Known != 1000 || domain.Lanes != 999 || len(domain.Keys) != 20 {
		t.Errorf("%d lanes, all: %v; %d keys of %d are shown", now.Looked, now.Whole, len(domain.Keys), domain.Known)
	}
	if !strings.HasSuffix(domain.Keys[0].Key, ".example") {
		t.Errorf("%+v", domain.Keys[0])
	}
}

// Of one key is said what its rules say, whether or not anything waits for it.
func TestALimitsKeyIsShown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		inspector := newInspector(t, client, "push")
		setPolicies(t, client, shownLimits())
		stop := runWorker(t, client, new(recorder), queue.WorkerConfig{})
		enqueue(t, client, keyed(jobs("a", "u", 3), "domain", "a,b.example")...)
		time.Sleep(time.Second)
		stop()
		key, err := inspector.LimitKey(t.Context(), "domain", "a%2Cb.example")
		must(t, err)
		if key.Full != .75 || key.Waiting != 0 || len(key.Rules) != 2 || key.Rules[0].Remaining != 1 || !key.Rules[1].Shadow || key.Next.After(time.Now()) {
			t.Errorf("%+v", key)
		}
		for name, want := range map[string]string{"x.free": "unlimited", "new.example": "empty"} {
			key, err := inspector.LimitKey(t.Context(), "domain", name)
			if err != nil || key.Full != 0 || (len(key.Rules) == 0) != (want == "unlimited") {
				t.Errorf("%s, which is %s: %+v, %v", name, want, key, err)
			}
		}
		for _, wrong := range [][2]string{{"none", "a"}, {"domain", "a,b"}, {"domain", ""}, {"all", "a"}} {
			if key, err := inspector.LimitKey(t.Context(), wrong[0], wrong[1]); !errors.Is(err, queue.ErrInvalidArgument) {
				t.Errorf("%q: %+v, %v", wrong, key, err)
			}
		}
	})
}
