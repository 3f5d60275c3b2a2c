package runner

import (
	"sync"
	"sync/atomic"
)

// Places are the jobs that a worker may run at once, shared by its queues.
type Places struct {
	free chan struct{}

	mu     sync.Mutex
	shares []*share
}

// NewPlaces returns n free places.
func NewPlaces(n int) *Places {
	p := &Places{free: make(chan struct{}, n)}
	for range n {
		p.free <- struct{}{}
	}
	return p
}

// A share is what one of the worker's queues has of its places.
type share struct {
	*Places
	mine    atomic.Int64
	changed chan struct{} // another queue has taken a place, or given one back
}

// share lets one more queue take places.
func (p *Places) share() *share {
	s := &share{Places: p, changed: make(chan struct{}, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shares = append(p.shares, s)
	return s
}

// take takes a place, if one is free.
func (s *share) take() bool {
	select {
	case <-s.free:
		s.took()
		return true
	default:
		return false
	}
}

// took notes that a place was taken from those that are free.
func (s *share) took() {
	s.mine.Add(1)
	s.tell()
}

func (s *share) give() {
	s.mine.Add(-1)
	s.free <- struct{}{}
	s.tell()
}

// tell tells the other queues.
func (s *share) tell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.shares {
		if other != s {
			signal(other.changed)
		}
	}
}

func (s *share) count() int { return len(s.free) }
func (s *share) all() int   { return cap(s.free) }

// left returns how many places the other queues leave to this one, those included that it
// has taken.
func (s *share) left() int { return len(s.free) + int(s.mine.Load()) }
