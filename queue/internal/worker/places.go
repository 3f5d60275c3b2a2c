package worker

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/waterclock/waterclock/queue/internal/retry"
)

// A worker has so many places, whatever the number of its queues. Each queue has a [Share] of them, without bounds of
// its own: what one queue leaves another can take. A share that changes tells the other shares, so that
// their beats tell their leaders.
//
// Two leaders may give the last place of a worker to a job each, since neither knows of the other. One of the jobs
// then waits here, and goes back after a second ([Worker.awaitPlace]). A leader takes places of its own worker at once,
// when it decides, so that cannot happen to it.

// Places are the jobs that a worker may run at once, shared by its queues. The channel holds a token for each free
// place.
type Places struct {
	free chan struct{}

	mu     sync.Mutex
	shares []*Share
}

// NewPlaces returns n free places.
func NewPlaces(n int) *Places {
	p := &Places{free: make(chan struct{}, n)}
	for range n {
		p.free <- struct{}{}
	}
	return p
}

// A Share is what one of the worker's queues has of its places: mine counts those that it has taken.
type Share struct {
	*Places
	mine    atomic.Int64
	changed chan struct{} // another queue has taken a place, or given one back
}

// Share lets one more queue take places, until it closes its share.
func (p *Places) Share() *Share {
	s := &Share{Places: p, changed: make(chan struct{}, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shares = append(p.shares, s)
	return s
}

// Close ends the share, of which all places were given back.
func (s *Share) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shares = slices.DeleteFunc(s.shares, func(other *Share) bool { return other == s })
}

// Take takes a place, if one is free, without waiting. Whoever has taken it calls Give once.
func (s *Share) Take() bool {
	select {
	case <-s.free:
		s.took()
		return true
	default:
		return false
	}
}

// took notes that a place was taken from those that are free.
func (s *Share) took() {
	s.mine.Add(1)
	s.tell()
}

// Give gives a place back.
func (s *Share) Give() {
	s.mine.Add(-1)
	s.free <- struct{}{}
	s.tell()
}

// tell tells the other queues that what is left to them has changed.
func (s *Share) tell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.shares {
		if other != s {
			retry.Signal(other.changed)
		}
	}
}

// Free returns how many places are free.
func (s *Share) Free() int { return len(s.free) }

// All returns how many there are.
func (p *Places) All() int { return cap(p.free) }

// Left returns how many places the other queues leave to this one, those included that it
// has taken. It is what a beat tells the leader of this queue.
func (s *Share) Left() int { return len(s.free) + int(s.mine.Load()) }
