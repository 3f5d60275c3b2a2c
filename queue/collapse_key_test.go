package queue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
)

// Of jobs under one collapse key that return to their lane in one moment the newest runs.
// The others are dropped, each with its reason: none is lost without a trace.
func TestCollapsedJobsThatReturnTogether(t *testing.T) {
	t.Parallel()
	const count = 3
	ways := map[string]func(t *testing.T, server *miniredis.Miniredis){
		"scheduled": func(t *testing.T, server *miniredis.Miniredis) {
			client := redistest.MiniClient(t, server)
			at := time.Now().Add(time.Minute)
			for i := range count {
				enqueue(t, client, named(fmt.Sprint("job-", i), "u", news, notBefore(at)))
				time.Sleep(time.Millisecond)
			}
		},
		"failed": func(t *testing.T, server *miniredis.Miniredis) {
			client := redistest.MiniClient(t, server)
			again := time.Now().Add(time.Minute)
			failing := recorder{then: func(context.Context, queue.Info) error {
				return queue.Retry{After: time.Until(again), Cause: errors.New("no")}
			}}
			stop := runWorker(t, client, &failing, queue.WorkerConfig{RetryDelay: after(0)})
			for i := range count {
				enqueue(t, client, named(fmt.Sprint("job-", i), "u", news))
				time.Sleep(time.Second)
			}
			stop()
		},
		"lost with their worker": func(t *testing.T, server *miniredis.Miniredis) {
			lost := make(chan struct{})
			hang := recorder{then: func(ctx context.Context, _ queue.Info) error { <-ctx.Done(); return ctx.Err() }}
			stop := runWorker(t, clientUntil(t, server, lost), &hang, queue.WorkerConfig{ShutdownTimeout: time.Nanosecond})
			client := redistest.MiniClient(t, server)
			for i := range count {
				enqueue(t, client, named(fmt.Sprint("job-", i), "u", news))
				time.Sleep(time.Second)
			}
			close(lost)
			stop()
		},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newMini(t)
				way(t, server)
				client := redistest.MiniClient(t, server)
				var got recorder
				runWorker(t, client, &got, queue.WorkerConfig{})
				time.Sleep(5 * time.Minute)
				what := map[string]string{}
				for _, start := range got.all() {
					what[start.ID] += "ran"
				}
				drops, err := newInspector(t, client, "push").Drops(t.Context(), 10)
				must(t, err)
				for _, drop := range drops {
					what[drop.ID] += string(drop.Reason)
				}
				for i := range count {
					id, want := fmt.Sprint("job-", i), map[bool]string{true: "ran", false: "collapsed"}[i == count-1]
					if what[id] != want {
						t.Errorf("%s: %q, want %q", id, what[id], want)
					}
				}
				if s := stats(t, client); s.Waiting+s.Running+s.Later != 0 {
					t.Errorf("left: %+v", s)
				}
			})
		})
	}
}
