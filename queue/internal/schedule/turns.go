package schedule

import (
	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// turns are the places in line of tenants and lanes that a scheduler has served. They are in no
// other place: a new leader begins with none.
type turns struct {
	shares map[string]int64
	served map[envelope.Lane]int64 // the slot of the last job
}

// TakeTurns tells whom the scheduler before this one has served: tenants and lanes keep their places
// in line. It is told before anything else.
func (s *Scheduler) TakeTurns(before *Scheduler) {
	s.turns = turns{make(map[string]int64), make(map[envelope.Lane]int64)}
	s.share = before.share
	for name, t := range before.tenants {
		s.turns.shares[name] = t.share
		for _, u := range t.users {
			for _, l := range u.lanes {
				if l.last > 0 {
					s.turns.served[l.name()] = l.last
				}
			}
		}
	}
}

// lane returns when a lane was served last by the scheduler before, until now.
func (t turns) lane(l *lane, now int64) int64 { return min(t.served[l.name()], now) }
