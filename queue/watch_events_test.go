package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/simulate"
	"github.com/waterclock/waterclock/queue/watch"
)

// listen collects what listening tells, until the test ends.
func listen[T any](t *testing.T, listening func(ctx context.Context, each func(T) error) error) (all func() []T) {
	ctx, cancel := context.WithCancel(context.Background())
	var mu sync.Mutex
	var told []T
	done := make(chan error, 1)
	go func() {
		done <- listening(ctx, func(e T) error {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, e)
			return nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return func() []T {
		mu.Lock()
		defer mu.Unlock()
		return append([]T(nil), told...)
	}
}

// Whoever listens is told of starts, ends, failures and drops; before that nothing is written
// for it.
func TestTail(t *testing.T) {
	t.Parallel()
	sample.Slow(t)
	onStages(t, func(t *testing.T, s stage) {
		i := newWatcher(t, s.client, "push")
		got := recorder{then: func(_ context.Context, info queue.Info) error {
			if info.User == "fails" {
				return errors.New("out of paper")
			}
			return nil
		}}
		runWorker(t, s.client, &got, queue.WorkerConfig{Lease: time.Second, RetryDelay: waitsFor(time.Hour)})
		enqueue(t, s.client, named("early", "works"))
		s.eventually(t, "it has run", func() bool { return stats(t, s.client).Done == 1 })
		if n := s.client.Exists(t.Context(), "wc:{push}:events", "wc:{push}:offers").Val(); n != 0 {
			t.Errorf("%d streams without a listener", n)
		}
		events := listen(t, i.Tail)
		s.eventually(t, "the worker knows that somebody listens", func() bool {
			enqueue(t, s.client, named("", "probe"))
			return len(events()) > 0
		})
		late := named("late", "works")
		late.StartBy = time.Now().Add(-time.Minute)
		enqueue(t, s.client, named("good", "works"), named("bad", "fails"), late)
		want := fmt.Sprint(map[string]string{"good claimed": "", "good started": "", "good done": "", "bad claimed": "", "bad started": "", "bad failed": "out of paper", "late dropped": "expired"})
		s.eventually(t, "all is told", func() bool {
			seen := make(map[string]string)
			for _, e := range events() {
				if e.User == "probe" {
					continue
				}
				seen[fmt.Sprint(e.ID, " ", e.Kind)] = e.Error + string(e.Reason)
				if e.Tenant != "school" || e.Type != "push" || e.At.IsZero() || e.Kind != watch.EventDropped && (e.Attempt != 1 || e.Host == "") {
					t.Fatalf("%+v", e)
				}
			}
			return fmt.Sprint(seen) == want
		})
	})
}

// Whoever listens to a flood is told how much was left out, and the queue goes on.
func TestTailOfAFlood(t *testing.T) {
	t.Parallel()
	sample.Slow(t)
	onStages(t, func(t *testing.T, s stage) {
		var got recorder
		runWorker(t, s.client, &got, queue.WorkerConfig{Lease: time.Second, Concurrency: 1000})
		events := listen(t, newWatcher(t, s.client, "push").Tail)
		s.eventually(t, "the worker knows that somebody listens", func() bool {
			enqueue(t, s.client, named("", "probe"))
			return len(events()) > 0
		})
		const n = 1000
		enqueue(t, s.client, jobs("school", "flood", n)...)
		s.eventually(t, "all are told or counted", func() bool {
			told := 0
			for _, e := range events() {
				if told += e.Missed; e.User == "flood" {
					told++
				}
			}
			return told >= 3*n
		})
	})
}

// Whoever records offers gets all of them as they were offered, without duplicates, and is told
// of a gap.
func TestOffers(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		type batch struct {
			offered []simulate.Offer
			missed  int
		}
		i := newWatcher(t, s.client, "push")
		setPolicies(t, s.client, policies(queue.Policy{Capacity: 4}))
		told := listen(t, func(ctx context.Context, each func(batch) error) error {
			return i.Offers(ctx, func(offered []simulate.Offer, missed int) error { return each(batch{offered, missed}) })
		})
		s.eventually(t, "it records", func() bool {
			return s.client.HExists(t.Context(), "wc:{push}:meta", "recorded").Val()
		})
		at := time.Now().Add(time.Hour).Truncate(time.Millisecond)
		full := queue.Job{
			ID: "a", Tenant: "s chool:", User: "u/ü", Type: "push", Payload: []byte("secret"), Headers: map[string]string{"a": "b"}, Cost: 3, NotBefore: at,
			StartBy: at, FinishBy: at, Priority: queue.High, CollapseKey: "k", MaxAttempts: 2, Timeout: time.Second,
			Keys: map[string]string{"domain": "gmail.com"}, Costs: map[string]int{"tokens": 812},
		}
		enqueue(t, s.client, full, named("b", "u"), named("b", "u"), named("", "u"))
		enqueue(t, s.client, jobs("school", "u", 3)...) // one finds no room
		var all []simulate.Offer
		s.eventually(t, "all are told", func() bool {
			all = nil
			for _, b := range told() {
				all = append(all, b.offered...)
				if b.missed != 0 {
					t.Fatalf("%d missed", b.missed)
				}
			}
			return len(all) == 6
		})
		if time.Since(all[0].At).Abs() > time.Minute || all[1].ID != "b" || all[2].ID != "" || all[5].User != "u" {
			t.Errorf("%+v", all)
		}
		full.Payload, full.Headers = nil, nil
		if got, want := fmt.Sprintf("%+v", utc(all[0].Job)), fmt.Sprintf("%+v", utc(full)); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		must(t, s.client.HIncrBy(t.Context(), "wc:{push}:meta", "in", 7).Err()) // as if a part had been cut off
		enqueue(t, s.client, named("", "v"))
		s.eventually(t, "the gap is told", func() bool {
			last := told()
			return last[len(last)-1].missed == 7
		})
	})
}

// utc returns a job whose times can be compared as text.
func utc(j queue.Job) queue.Job {
	j.NotBefore, j.StartBy, j.FinishBy = j.NotBefore.UTC(), j.StartBy.UTC(), j.FinishBy.UTC()
	return j
}

// The end of a job that runs when its worker is told to stop is told.
func TestTailDuringAShutdown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		i := newWatcher(t, client, "push")
		got := recorder{then: func(ctx context.Context, info queue.Info) error {
			if info.User == "slow" {
				time.Sleep(3 * time.Second)
			}
			return nil
		}}
		stop := runWorker(t, client, &got, queue.WorkerConfig{Lease: time.Second})
		events := listen(t, i.Tail)
		time.Sleep(5 * time.Second)
		enqueue(t, client, named("slow", "slow"))
		time.Sleep(time.Second)
		stop()
		time.Sleep(5 * time.Second)
		var kinds []string
		for _, e := range events() {
			kinds = append(kinds, string(e.Kind)+" "+e.ID)
		}
		if !slices.Contains(kinds, "done slow") {
			t.Errorf("told of %q, want the end of the job as well", kinds)
		}
	})
}
