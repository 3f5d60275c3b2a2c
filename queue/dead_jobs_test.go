package queue_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// dying runs jobs that fail for good, and returns the dead ones, newest first.
func dying(t *testing.T, client redis.UniversalClient, jobs ...queue.Job) []queue.DeadJob {
	t.Helper()
	stop := runWorker(t, client, &recorder{then: func(context.Context, queue.Info) error { return asynq.SkipRetry }}, queue.WorkerConfig{})
	for _, job := range jobs {
		enqueue(t, client, job)
	}
	var dead []queue.DeadJob
	redistest.Eventually(t, 10*time.Second, "all are dead", func() bool {
		var err error
		if dead, err = newWatcher(t, client, "push").Dead(t.Context(), "", 100); err != nil {
			t.Fatal(err)
		}
		return len(dead) == len(jobs)
	})
	stop()
	return dead
}

// Dead jobs are read page by page.
func TestDeadPageByPage(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		all := dying(t, client, jobs("school", "teacher", 7)...)
		i := newWatcher(t, client, "push")
		var seen []queue.DeadJob
		last := ""
		for range 4 {
			page, err := i.Dead(t.Context(), last, 3)
			if err != nil {
				t.Fatal(err)
			}
			if seen = append(seen, page...); len(page) > 0 {
				last = page[len(page)-1].Entry
			}
		}
		if len(seen) != 7 {
			t.Fatalf("%d dead jobs on all pages", len(seen))
		}
		for k := range seen {
			if seen[k].Entry != all[k].Entry {
				t.Errorf("%d: %s, want %s", k, seen[k].Entry, all[k].Entry)
			}
		}
		if _, err := i.Dead(t.Context(), "oops", 3); !errors.Is(err, queue.ErrInvalidArgument) {
			t.Error(err)
		}
	})
}

// A deleted dead job is gone, with the payload that was kept apart, and the others are not.
func TestDeleteDead(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		all := jobs("school", "teacher", 3)
		all[1].ID, all[1].Payload = "large", []byte(strings.Repeat("x", 100_000))
		dead := dying(t, client, all...)
		large := slices.IndexFunc(dead, func(d queue.DeadJob) bool { return d.ID == "large" })
		i := newWatcher(t, client, "push")
		if n, err := i.DeleteDead(t.Context(), dead[large].Entry, "oops"); n != 0 || !errors.Is(err, queue.ErrInvalidArgument) {
			t.Errorf("%d, %v", n, err)
		}
		if keys := client.Keys(t.Context(), "wc:{push}:body:*").Val(); len(keys) != 1 {
			t.Fatalf("%q: no payload is kept apart", keys)
		}
		if n, err := i.DeleteDead(t.Context(), dead[large].Entry, dead[large].Entry, "1-1"); n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if keys := client.Keys(t.Context(), "wc:{push}:body:*").Val(); len(keys) != 0 {
			t.Errorf("%q stay", keys)
		}
		if n, err := i.DeleteDead(t.Context(), dead[large].Entry); n != 0 || err != nil {
			t.Errorf("again: %d, %v", n, err)
		}
		left, err := i.Dead(t.Context(), "", 10)
		if want := slices.Delete(dead, large, large+1); err != nil || !slices.Equal(left, want) {
			t.Errorf("%+v, %v, want %+v", left, err, want)
		}
	})
}

// The newest starts of a user are those that its window looks at.
func TestRecent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		setPolicies(t, client, policies(queue.Policy{User: []throttle.Rule{throttle.Window(3, time.Minute), throttle.Spacing(time.Second)}}))
		r := &recorder{}
		runWorker(t, client, r, queue.WorkerConfig{})
		enqueue(t, client, jobs("school", "teacher", 10)...)
		time.Sleep(90 * time.Second)
		i := newWatcher(t, client, "push")
		recent, err := i.Recent(t.Context(), "school", "teacher")
		starts := r.all()
		if err != nil || len(starts) != 6 || len(recent) != 4 { // one more than the window holds
			t.Fatalf("%v, %v, of %d starts", recent, err, len(starts))
		}
		for k, at := range recent {
			if d := starts[2+k].Slot.Sub(at).Abs(); d > time.Millisecond {
				t.Errorf("%v, started at %v", at, starts[2+k].Slot)
			}
		}
		if none, err := i.Recent(t.Context(), "school", "nobody"); err != nil || len(none) > 0 {
			t.Errorf("%v, %v", none, err)
		}
	})
}
