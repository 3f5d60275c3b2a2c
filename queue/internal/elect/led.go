package elect

import (
	"sync"
	"time"

	"github.com/waterclock/waterclock/queue/internal/members"
)

// A Led is how many partitions of a queue a worker leads: its electors for them have one. If each worker led what it finds, the first that
// comes would lead everything, and the whole queue would wait for somebody else when it dies. So
//
//   - of those that find that nobody leads, whoever leads less takes the lease first ([Led.modesty]);
//   - a worker that leads more than its part hands one over to a deputy, now and then ([Led.Excess]). One that has too many by then
//     hands on.
//
// The zero value is that of a worker that leads nothing. A nil Led is that of a queue without partitions.
type Led struct {
	mu    sync.Mutex
	leads int
	part  int       // how many it should lead at most; 0 if that is not known
	moved time.Time // when something was handed over last
}

const (
	// handOverEvery is how often a worker hands a partition over.
	handOverEvery = time.Second
	// modest is how much later a worker looks for each partition that it leads, and mostModest how much at most.
	modest     = 8 * time.Millisecond
	mostModest = 80 * time.Millisecond
)

func (s *Led) add(n int) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leads += n
}

// modesty is how much later than others the worker takes the lease that nobody has.
func (s *Led) modesty() time.Duration {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(time.Duration(s.leads)*modest, mostModest)
}

// Count notes how many partitions the queue has, and how many workers take part in any of them. A worker leads where it is a member: equal
// numbers for all may be impossible then, so each may lead one more.
func (s *Led) Count(partitions, workers int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.part = (partitions + workers - 1) / workers
	if workers > members.Least {
		s.part++
	}
}

// Excess reports whether the worker should hand over one of the partitions that it leads. It says so for one of them at a time.
func (s *Led) Excess() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.part == 0 || s.leads <= s.part || time.Since(s.moved) < handOverEvery {
		return false
	}
	s.moved = time.Now()
	return true
}
