package queue

import (
	"errors"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// Of the batches of one round those are told that were lost, and no others.
func TestOneOfARoundIsForgotten(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	master.StartReplica(t)
	rdb := master.Client(t)
	s, err := store.New(rdb, "push")
	if err != nil {
		t.Fatal(err)
	}
	b := newBarrier(s, Durability{Replicas: 1})
	names, told := []string{"a", "b", "lost", "c"}, make(map[string]chan error)
	b.free <- struct{}{} // nobody goes before all are there
	for i, name := range names {
		if name != "lost" {
			if err := rdb.Set(t.Context(), "wc:{push}:batch:"+name, "x", 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		answer := make(chan error, 1)
		told[name] = answer
		go func() { answer <- b.wait(t.Context(), name) }()
		redistest.Eventually(t, 10*time.Second, "it is in the round", func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.next != nil && len(b.next.batches) == i+1
		})
	}
	<-b.free
	for _, name := range names {
		err := <-told[name]
		busy := errors.Is(err, ErrNotDurable) // a busy replica may take longer than a round waits for it
		if errors.Is(err, errForgotten) != (name == "lost") || name != "lost" && err != nil && !busy {
			t.Errorf("%s: %v", name, err)
		}
	}
}
