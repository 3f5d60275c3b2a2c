package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/doctor"
	"github.com/waterclock/waterclock/throttle"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// divided returns the doctor of a queue with four partitions, in each of which jobs wait.
func divided(t *testing.T, client redis.UniversalClient) (*doctor.Doctor, *queue.Inspector) {
	t.Helper()
	inspector, err := queue.NewInspector(client, "push")
	must(t, err)
	must(t, inspector.SetPolicies(t.Context(), queue.Policies{
		Partitions: 4, Queue: []throttle.Rule{throttle.Leak(500, time.Second)}, Default: "p",
		Policies: map[string]queue.Policy{"p": {User: []throttle.Rule{throttle.Window(2, time.Hour)}, UserCapacity: 100}},
		Limits:   map[string]queue.Limit{"type": {Key: []string{"type"}, Rules: []throttle.Rule{throttle.Window(1000, time.Hour)}}},
	}))
	offers, err := queue.NewClient(client, "push")
	must(t, err)
	var jobs []queue.Job
	for k := range 200 {
		job := queue.Job{ID: fmt.Sprint(k), Tenant: fmt.Sprint("school-", k%20), User: "u", Type: "x", MaxAttempts: 1}
		switch k % 9 {
		case 0:
			job.CollapseKey = "k"
		case 1:
			job.NotBefore = time.Now().Add(time.Hour)
		}
		jobs = append(jobs, job)
	}
	_, err = offers.Enqueue(t.Context(), jobs...)
	must(t, err)
	must(t, inspector.Pause(t.Context(), queue.Pause{Scope: queue.ScopeTenant, Tenant: "school-1", For: time.Hour}))
	d, err := doctor.New(client, "push")
	must(t, err)
	return d, inspector
}

// A divided queue is sound while it runs, and afterwards.
func TestADividedQueueIsSound(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		d, inspector := divided(t, client)
		worker, err := queue.NewWorker(client, queue.WorkerConfig{Queues: []string{"push"}, Logger: slog.New(slog.DiscardHandler)})
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		fail := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return errors.New("no") })
		go func() { ended <- worker.Run(ctx, fail) }()
		sound := func(when string) {
			t.Helper()
			if found, err := d.Examine(t.Context()); err != nil || len(found) > 0 {
				t.Errorf("%s: %+v, %v", when, found, err)
			}
		}
		redistest.Eventually(t, 20*time.Second, "two jobs of most users have started", func() bool {
			sound("while it runs")
			stats, err := inspector.Stats(t.Context())
			return err == nil && stats.Dead >= 2*19
		})
		cancel()
		must(t, <-ended)
		sound("afterwards")
	})
}

// What is damaged in one partition is found there and nowhere else, and mended; so is what the partitions have in common.
func TestDamageOfADividedQueue(t *testing.T) {
	t.Parallel()
	const partition = 2
	client := redistest.Start(t).Client(t)
	d, inspector := divided(t, client)
	key := func(rest string) string { return fmt.Sprintf("wc:{push/%d}:%s", partition, rest) }
	tenant := client.ZRange(t.Context(), key("tenants"), 0, 0).Val()[0]
	lane := client.Keys(t.Context(), key("lane:"+tenant+":*")).Val()[0]
	for what, c := range map[string]struct {
		damage []any
		kind   string
		key    string
	}{
		"an index is gone":                   {[]any{"DEL", key("due:" + tenant)}, "lane", lane},
		"too many started":                   {[]any{"HINCRBY", key("meta"), "started", 5}, "counters", key("meta")},
		"a list is a text":                   {[]any{"SET", key("dead"), "x"}, "type", key("dead")},
		"no policies":                        {[]any{"HDEL", key("meta"), "policies"}, "meta", key("meta")},
		"it does not say that it is divided": {[]any{"DEL", "wc:{push}:meta"}, "meta", "wc:{push}:meta"},
		"what all have is a text":            {[]any{"SET", "wc:{push}:meta", "x"}, "type", "wc:{push}:meta"},
	} {
		must(t, client.Do(t.Context(), c.damage...).Err())
		found, err := d.Examine(t.Context())
		must(t, err)
		is := func(damage doctor.Damage) bool { return damage.Kind == c.kind && damage.Key == c.key }
		if !slices.ContainsFunc(found, is) {
			t.Errorf("%s: %+v", what, found)
		}
		mended, left, err := d.Repair(t.Context())
		if !slices.ContainsFunc(mended, is) || len(left) > 0 || err != nil {
			t.Errorf("%s: mended %+v, left %+v, %v", what, mended, left, err)
		}
		if found, err := d.Examine(t.Context()); err != nil || len(found) > 0 {
			t.Errorf("%s, afterwards: %+v, %v", what, found, err)
		}
	}
	again, err := queue.NewInspector(client, "push")
	must(t, err)
	stats, err := again.Stats(t.Context())
	before, failed := inspector.Stats(t.Context())
	if err != nil || failed != nil || stats.Waiting != before.Waiting || stats.Waiting == 0 {
		t.Errorf("%d jobs wait, want %d: %v, %v", stats.Waiting, before.Waiting, err, failed)
	}
}

// In a cluster each partition is examined at the node that has it.
func TestADividedQueueInACluster(t *testing.T) {
	t.Parallel()
	sample.Slow(t)
	client := redistest.StartCluster(t, 2)
	d, _ := divided(t, client)
	for k := range 4 {
		must(t, client.HIncrBy(t.Context(), fmt.Sprintf("wc:{push/%d}:meta", k), "started", 5).Err())
	}
	mended, left, err := d.Repair(t.Context())
	if len(mended) != 4 || len(left) > 0 || err != nil {
		t.Errorf("mended %+v, left %+v, %v", mended, left, err)
	}
}
