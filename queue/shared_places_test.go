package queue_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// slowIn returns a handler whose jobs of one queue take so long, and those of others no time.
func slowIn(name string, takes time.Duration) *recorder {
	return &recorder{then: func(_ context.Context, info queue.Info) error {
		if info.Queue == name {
			time.Sleep(takes)
		}
		return nil
	}}
}

// A worker whose places another queue has taken holds nobody up who has some.
func TestPlacesOfAnotherQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		must(t, newInspector(t, client, "a").SetPolicies(t.Context(), policies(queue.Policy{User: []throttle.Rule{throttle.Spacing(time.Second)}})))
		got := slowIn("b", 30*time.Second)
		offer := func(name string, n int) {
			_, err := newClient(t, client, name).Enqueue(t.Context(), jobs("t", "u", n)...)
			must(t, err)
		}
		runWorker(t, client, got, queue.WorkerConfig{Queues: []string{"a", "b"}, Concurrency: 1})
		time.Sleep(time.Second)
		offer("a", 5)
		time.Sleep(100 * time.Millisecond)
		runWorker(t, client, got, queue.WorkerConfig{Queues: []string{"a"}})
		time.Sleep(100 * time.Millisecond)
		offer("b", 1)
		time.Sleep(20 * time.Second)
		n := 0
		for _, start := range got.all() {
			if start.Queue != "a" {
				continue
			}
			if late := start.Waited - time.Duration(n)*(time.Second+grace); late > 10*time.Millisecond {
				t.Errorf("start %d was %v late, with an idle worker there", n, late)
			}
			n++
		}
		if n != 5 {
			t.Errorf("%d starts of 5", n)
		}
	})
}

// The leader of one queue knows which places the worker's other queue has taken: jobs go
// where they start at once, also when that changes.
func TestTheOtherQueueIsBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		got := slowIn("a", 30*time.Second)
		offer := func(name string, n int) {
			for i := range n {
				_, err := newClient(t, client, name).Enqueue(t.Context(), jobs("t", fmt.Sprint(i), 1)...)
				must(t, err)
			}
		}
		runWorker(t, client, got, queue.WorkerConfig{Queues: []string{"b"}, Concurrency: 10}) // it leads b
		time.Sleep(3 * time.Second)
		runWorker(t, client, got, queue.WorkerConfig{Queues: []string{"a", "b"}, Concurrency: 10})
		for range 5 {
			time.Sleep(3 * time.Second)
			offer("a", 10)
			time.Sleep(100 * time.Millisecond)
			offer("b", 10)
			time.Sleep(30 * time.Second) // a's jobs have ended
			offer("b", 10)
		}
		time.Sleep(3 * time.Second)
		n := 0
		for _, start := range got.all() {
			if start.Queue != "b" {
				continue
			}
			if n++; start.Waited > 10*time.Millisecond || start.Started.Sub(start.Offered) > 20*time.Millisecond {
				t.Errorf("start %d of b waited %v", n, start.Started.Sub(start.Offered))
			}
		}
		if n != 100 {
			t.Errorf("%d starts of 100", n)
		}
	})
}

// A place that one queue gives back is taken by the other's job at once.
func TestThePlaceOfTheOtherQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		got := slowIn("a", 5123*time.Millisecond)
		runWorker(t, client, got, queue.WorkerConfig{Queues: []string{"a", "b"}, Concurrency: 1})
		time.Sleep(3 * time.Second)
		for _, name := range []string{"a", "b"} {
			_, err := newClient(t, client, name).Enqueue(t.Context(), jobs("t", "u", 1)...)
			must(t, err)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		starts := got.all()
		if len(starts) != 2 {
			t.Fatalf("%d starts of 2", len(starts))
		}
		if late := starts[1].Started.Sub(starts[0].Started) - 5123*time.Millisecond; late > 5*time.Millisecond {
			t.Errorf("b's job started %v after a's had ended", late)
		}
	})
}
