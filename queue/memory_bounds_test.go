package queue_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// keptForEver returns the keys of the queue that are about a tenant, a user or a job and never expire.
func keptForEver(t *testing.T, client redis.UniversalClient) (keys []string) {
	t.Helper()
	ofTheQueue := []string{"meta", "policies", "history", "workers", "notices", "drops", "refused", "dead"}
	for _, key := range client.Keys(t.Context(), "wc:{push}:*").Val() {
		name := strings.TrimPrefix(key, "wc:{push}:")
		if client.TTL(t.Context(), key).Val() < 0 && !slices.Contains(ofTheQueue, name) {
			keys = append(keys, name)
		}
	}
	slices.Sort(keys)
	return keys
}

// Nothing of a job, a user or a tenant stays in Redis for ever, whatever becomes of the jobs.
func TestNothingIsKeptForEver(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	limits := policies(queue.Policy{
		Tenant: []throttle.Rule{throttle.Leak(1, time.Minute), throttle.Window(3, time.Minute)},
		User:   []throttle.Rule{throttle.Window(5, time.Hour)}, Capacity: 2, DropOldest: true,
	})
	cancel := func(t *testing.T, client redis.UniversalClient, id string) {
		t.Helper()
		if ok, err := newInspector(t, client, "push").Cancel(t.Context(), id); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	for name, live := range map[string]func(t *testing.T, client redis.UniversalClient){
		"done": func(t *testing.T, client redis.UniversalClient) {
			enqueue(t, client, named("a", "u"), named("b", "v", func(j *queue.Job) { j.Payload = make([]byte, 10_000) }))
		},
		"failed": func(t *testing.T, client redis.UniversalClient) {
			enqueue(t, client, named("fails", "u", func(j *queue.Job) { j.MaxAttempts = 2 }))
		},
		"scheduled": func(t *testing.T, client redis.UniversalClient) {
			enqueue(t, client, named("a", "u", notBefore(time.Now().Add(time.Minute))))
		},
		"cancelled": func(t *testing.T, client redis.UniversalClient) {
			enqueue(t, client, named("first", "u"), named("a", "u"))
			cancel(t, client, "a")
		},
		"cancelled and dropped to make room": func(t *testing.T, client redis.UniversalClient) {
			enqueue(t, client, named("first", "u"))
			time.Sleep(time.Second)
			enqueue(t, client, named("a", "u"))
			cancel(t, client, "a")
			enqueue(t, client, named("b", "u"), named("c", "u"), named("d", "u"))
		},
		"cancelled and purged": func(t *testing.T, client redis.UniversalClient) {
			enqueue(t, client, named("first", "u"), named("a", "u"))
			cancel(t, client, "a")
			_, err := newInspector(t, client, "push").Purge(t.Context(), "school")
			must(t, err)
		},
		"cancelled and collapsed": func(t *testing.T, client redis.UniversalClient) {
			enqueue(t, client, named("first", "u"))
			time.Sleep(time.Second)
			enqueue(t, client, named("a", "u", news))
			cancel(t, client, "a")
			enqueue(t, client, named("b", "u", news))
		},
		"cancelled and older than one under its collapse key": func(t *testing.T, client redis.UniversalClient) {
			enqueue(t, client, named("first", "u"))
			enqueue(t, client, named("a", "u", news, notBefore(time.Now().Add(time.Second))))
			cancel(t, client, "a")
			enqueue(t, client, named("b", "u", news))
		},
		"cancelled while it is scheduled": func(t *testing.T, client redis.UniversalClient) {
			enqueue(t, client, named("first", "u"), named("a", "u", notBefore(time.Now().Add(time.Second))))
			cancel(t, client, "a")
		},
		"refused": func(t *testing.T, client redis.UniversalClient) {
			if r := enqueue(t, client, named("dear", "u", cost(10_000)))[0]; r.Status != queue.Dropped {
				t.Fatal(r)
			}
		},
		"paused for some time, and noted": func(t *testing.T, client redis.UniversalClient) {
			i := newInspector(t, client, "push").As(queue.Note{Author: "somebody", Reason: "some reason"})
			must(t, i.Pause(t.Context(), queue.Pause{Scope: queue.ScopeTenant, Tenant: "school", Until: time.Now().Add(10 * time.Millisecond)}))
			time.Sleep(20 * time.Millisecond)
			must(t, i.Pause(t.Context(), queue.Pause{Scope: queue.ScopeTenant, Tenant: "other", Until: time.Now().Add(time.Second)}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := redistest.Mini(t)
				setPolicies(t, client, limits)
				got := recorder{then: func(_ context.Context, info queue.Info) error {
					if info.ID == "fails" {
						return errors.New("it fails")
					}
					return nil
				}}
				stop := runWorker(t, client, &got, queue.WorkerConfig{})
				time.Sleep(time.Second)
				live(t, client)
				for !drained(t, client)() {
					time.Sleep(time.Minute)
				}
				time.Sleep(5 * time.Minute) // the rules allow the next job: the leader forgets the tenant
				stop()
				time.Sleep(10 * 24 * time.Hour)
				if keys := keptForEver(t, client); len(keys) > 0 {
					t.Errorf("what is kept for ever: %q", keys)
				}
			})
		})
	}
}
