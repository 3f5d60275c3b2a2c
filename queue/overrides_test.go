package queue_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// overridden are policies with a leak of one rate for the queue, each tenant, each user or each domain.
func overridden(limit string, perSecond int) queue.Policies {
	rules := []throttle.Rule{throttle.Leak(perSecond, time.Second)}
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

func override(t *testing.T, client redis.UniversalClient, o queue.Override) (until time.Time) {
	t.Helper()
	inspector := newInspector(t, client, "push").As(queue.Note{Author: "ann", Reason: "they are slow"})
	if err := inspector.Override(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	all, err := inspector.Overrides(t.Context())
	if err != nil || len(all) == 0 {
		t.Fatalf("%v, %v", all, err)
	}
	return all[0].Until
}

// pace returns how many of a tenant's jobs started in a span, and the shortest distance between two of their slots.
func pace(all []queue.Info, tenant string, from, to time.Time) (n int, closest time.Duration) {
	closest = time.Hour
	var last time.Time
	for _, s := range all {
		if s.Tenant != tenant || s.Slot.Before(from) || !s.Slot.Before(to) {
			continue
		}
		if n++; n > 1 {
			closest = min(closest, s.Slot.Sub(last))
		}
		last = s.Slot
	}
	return n, closest
}

// An override counts at once for jobs that wait, for whom it names and nobody else, and no longer than it is said: not one
// slot of its pace lies at its end or after it.
func TestOverridesEndByThemselves(t *testing.T) {
	t.Parallel()
	for limit, key := range sample.Cases(t, map[string][]string{
		"queue": nil, "tenant": {"school"}, "user": {"school", "teacher"}, "domain": {"gmail.com"},
	}, 1, 2) {
		for name, rate := range map[string]struct{ base, override int }{"slower": {20, 2}, "faster": {2, 200}} {
			t.Run(limit+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					client := redistest.Mini(t)
					setPolicies(t, client, overridden(limit, rate.base))
					var got recorder
					runWorker(t, client, &got, queue.WorkerConfig{})
					runWorker(t, client, &got, queue.WorkerConfig{})
					enqueue(t, client, keyed(jobs("school", "teacher", 2500), "domain", "gmail.com")...)
					if limit != "queue" {
						enqueue(t, client, keyed(jobs("calm", "teacher", 1500), "domain", "up.example")...)
					}
					time.Sleep(10*time.Second + 7*time.Millisecond)
					began := time.Now()
					until := override(t, client, queue.Override{
						Limit: limit, Key: key, Rules: []throttle.Rule{throttle.Leak(rate.override, time.Second)}, For: 10 * time.Second,
					})
					time.Sleep(time.Until(until) + 10*time.Second)
					for _, span := range []struct {
						what, tenant string
						from, to     time.Time
						rate         int
					}{
						{"before it", "school", time.Time{}, began, rate.base},
						{"during it", "school", began.Add(25 * time.Millisecond), until, rate.override},
						{"after it", "school", until, until.Add(10 * time.Second), rate.base},
						{"another tenant", "calm", began, until.Add(10 * time.Second), rate.base},
					} {
						if span.tenant == "calm" && limit == "queue" {
							continue
						}
						n, closest := pace(got.all(), span.tenant, span.from, span.to)
						from := span.from
						if from.IsZero() {
							from = began.Add(-10 * time.Second)
						}
						want := int(span.to.Sub(from).Seconds() * float64(span.rate))
						if n < want-2 || n > want+2 || closest < time.Second/time.Duration(span.rate) {
							t.Errorf("%s: %d starts, want about %d; two of them %v apart, want %d/s", span.what, n, want, closest, span.rate)
						}
					}
				})
			})
		}
	}
}

// Nobody has to run when an override ends: a leader that starts later sees that it has. What it held back, with bounds far
// ahead in Redis, starts at once.
func TestAnOverrideEndsWhileNobodyRuns(t *testing.T) {
	t.Parallel()
	for limit, key := range map[string][]string{"tenant": {"school"}, "user": {"school", "teacher"}, "domain": {"gmail.com"}} {
		for name, leaves := range map[string]bool{"the leader stays": false, "the leader leaves": true} {
			t.Run(limit+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					client := redistest.Mini(t)
					setPolicies(t, client, overridden(limit, 100))
					until := override(t, client, queue.Override{
						Limit: limit, Key: key, Rules: []throttle.Rule{throttle.Leak(1, time.Hour)}, For: 2 * time.Minute,
					})
					var got recorder
					stop := runWorker(t, client, &got, queue.WorkerConfig{})
					enqueue(t, client, keyed(jobs("school", "teacher", 20), "domain", "gmail.com")...)
					time.Sleep(time.Minute)
					if leaves {
						stop()
					}
					time.Sleep(time.Until(until) - time.Second)
					if got.count() != 1 {
						t.Fatalf("%d of 1 started before the end", got.count())
					}
					if leaves {
						time.Sleep(time.Minute)
						runWorker(t, client, &got, queue.WorkerConfig{})
					}
					time.Sleep(4 * time.Second)
					if got.count() != 20 {
						t.Errorf("%d of 20 started after the end", got.count())
					}
				})
			})
		}
	}
}

// Overrides stay when policies are set, end when they are told to, and are in the history with their authors.
func TestOverridesAndPoliciesThatAreSet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		client := redistest.Mini(t)
		inspector := newInspector(t, client, "push").As(queue.Note{Author: "ann", Reason: "they are slow"})
		in := func() (names []string) {
			t.Helper()
			all, err := inspector.Overrides(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range all {
				if o.Author != "ann" || o.Reason != "they are slow" || o.Since.IsZero() || len(o.Rules) != 1 {
					t.Errorf("%+v", o)
				}
				names = append(names, o.Limit)
			}
			return names
		}
		setPolicies(t, client, overridden("domain", 10))
		one := []throttle.Rule{throttle.Leak(1, time.Second)}
		override(t, client, queue.Override{Limit: "domain", Key: []string{"a,\xff%*"}, Rules: one, For: 2 * time.Hour})
		override(t, client, queue.Override{Limit: "tenant", Key: []string{"school"}, Rules: one, For: time.Hour})
		override(t, client, queue.Override{Limit: "tenant", Key: []string{"school"}, Rules: one, For: time.Hour})
		version := func() int64 {
			now, err := inspector.Policies(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return now.Version
		}
		before := version()
		setPolicies(t, client, overridden("domain", 10))
		if version() != before {
			t.Error("setting the same policies has changed something")
		}
		setPolicies(t, client, overridden("domain", 20))
		if now := in(); !slices.Equal(now, []string{"tenant", "domain"}) {
			t.Errorf("%q in force", now)
		}
		setPolicies(t, client, overridden("tenant", 20))
		if now := in(); !slices.Equal(now, []string{"tenant"}) {
			t.Errorf("%q in force without limit domain", now)
		}
		region := overridden("domain", 20)
		region.Limits = map[string]queue.Limit{"domain": {Key: []string{"keys.region"}, Rules: one}}
		setPolicies(t, client, region)
		if now := in(); !slices.Equal(now, []string{"tenant"}) {
			t.Errorf("%q in force where limit domain has another key", now)
		}
		setPolicies(t, client, overridden("domain", 20))
		if was, err := inspector.EndOverride(ctx, "tenant", "school"); !was || err != nil {
			t.Errorf("%v, %v", was, err)
		}
		if was, err := inspector.EndOverride(ctx, "tenant", "school"); was || err != nil {
			t.Errorf("ended twice: %v, %v", was, err)
		}
		if now := in(); !slices.Equal(now, []string{"domain"}) {
			t.Errorf("%q in force", now)
		}
		history, err := inspector.PolicyHistory(ctx, 2)
		if err != nil || len(history) != 2 || len(history[0].Overrides) != 1 || len(history[1].Overrides) != 2 || history[0].Author != "ann" {
			t.Errorf("%+v, %v", history, err)
		}
		time.Sleep(2 * time.Hour)
		if now := in(); len(now) != 0 {
			t.Errorf("%q in force after their end", now)
		}
	})
}

// What is wrong with an override is said, and nothing changes.
func TestWrongOverrides(t *testing.T) {
	t.Parallel()
	client := redistest.Mini(t)
	setPolicies(t, client, overridden("domain", 10))
	inspector := newInspector(t, client, "push")
	good := queue.Override{Limit: "domain", Key: []string{"x"}, Rules: []throttle.Rule{throttle.Leak(1, time.Second)}, For: time.Hour}
	for what, c := range map[string]struct {
		change func(o *queue.Override)
		want   error
	}{
		"no such limit":     {func(o *queue.Override) { o.Limit = "domian" }, queue.ErrInvalidArgument},
		"too many values":   {func(o *queue.Override) { o.Key = []string{"x", "y"} }, queue.ErrInvalidArgument},
		"no end":            {func(o *queue.Override) { o.For = 0 }, queue.ErrInvalidArgument},
		"an end before":     {func(o *queue.Override) { o.Until = time.Now().Add(-time.Hour) }, queue.ErrInvalidArgument},
		"limits nothing":    {func(o *queue.Override) { o.Rules = nil }, queue.ErrInvalidPolicies},
		"a bad rule":        {func(o *queue.Override) { o.Rules = []throttle.Rule{throttle.Leak(0, time.Second)} }, queue.ErrInvalidPolicies},
		"an empty value":    {func(o *queue.Override) { o.Key = []string{""} }, queue.ErrInvalidPolicies},
		"a bad concurrency": {func(o *queue.Override) { o.Concurrency.Percent = 101 }, queue.ErrInvalidPolicies},
	} {
		o := good
		c.change(&o)
		if err := inspector.Override(t.Context(), o); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
	if all, err := inspector.Overrides(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
	if err := inspector.Override(t.Context(), good); err != nil {
		t.Error(err)
	}
}
