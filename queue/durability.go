package queue

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/waterclock/waterclock/queue/internal/store"
)

// A Durability is where a job has to be before [Client.Enqueue] says that it is accepted. The zero value is the memory of
// the Redis that answers: a job is lost with it, if it fails before a replica has the job.
//
// Enqueue waits by the commands WAIT or WAITAOF, half a second at a time: the client's ReadTimeout has to be longer. All calls
// that wait at a time wait together, over one connection. If a job has not come that far after half a minute Enqueue returns
// [ErrNotDurable], and the job may run all the same. Workers do not wait for replicas. After a failover to a replica that had
// the job, the job is there, and runs at least once.
type Durability struct {
	// Replicas is how many replicas must have the job. Whichever of n replicas is promoted has it, if all n had to. The
	// embedded Redis has none.
	Replicas int

	// Disk is whether the job must be in the append-only file of the master, on disk, and in those of as many replicas as
	// Replicas says. It needs Redis 7.2 or later, or Valkey, with appendonly yes. With appendfsync everysec
	// it takes up to a second.
	Disk bool
}

// A barrier is where batches that have been offered wait until they are where they have to be. One round of them waits in
// Redis at a time, over one connection, so that a replica that is away takes no connections from others. Those that come
// meanwhile are the next round.
type barrier struct {
	store *store.Store
	want  store.Durability
	free  chan struct{} // full while a round waits in Redis

	mu   sync.Mutex
	next *waiting // gathers batches; nil if there are none
}

// waiting is a round of batches. Its results are there when done is closed.
type waiting struct {
	batches []string
	done    chan struct{}
	known   []bool
	err     error
}

func newBarrier(s *store.Store, want Durability) *barrier {
	return &barrier{store: s, want: store.Durability(want), free: make(chan struct{}, 1)}
}

// barrierPatience is how long a round may take: longer than Redis waits for replicas and disks.
const barrierPatience = 5 * time.Second

// errForgotten is about a batch that was lost with its master. Offered again it is there.
var errForgotten = errors.New("queue: the Redis that answers does not know the jobs any more; another one has taken over")

// wait returns nil when a batch is where it has to be.
func (b *barrier) wait(ctx context.Context, batch string) error {
	b.mu.Lock()
	w := b.next
	if w == nil {
		w = &waiting{done: make(chan struct{})}
		b.next = w
		go b.play(w)
	}
	place := len(w.batches)
	w.batches = append(w.batches, batch)
	b.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-w.done:
	}
	if w.known != nil && !w.known[place] {
		return errForgotten
	}
	return w.err
}

// play lets a round wait in Redis, when the one before has.
func (b *barrier) play(w *waiting) {
	b.free <- struct{}{}
	defer func() { <-b.free }()
	b.mu.Lock()
	b.next = nil
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), barrierPatience)
	defer cancel()
	w.known, w.err = b.store.Durable(ctx, w.batches, batchMemory, b.want)
	close(w.done)
}
