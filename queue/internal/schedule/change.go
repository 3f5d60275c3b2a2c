package schedule

import (
	"strings"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// What people decide changes what it is about, and no more. Who has been served, which lanes are in memory, and where
// they stand in line stays as it is: otherwise an operator who acts once a second would send everybody back to the
// start.
//
// New policies concern all: bounds that were computed under the old ones may be too late now, so every lane in memory is
// looked at again, in the order in which they stood. Lanes that are not in memory have bounds in Redis; a sweep lowers
// those (package leader), and the scheduler is told of each tenant with [Lowered].
//
// The end of a pause, or an earlier one, makes the paused scope's lanes due. A new pause needs no such step: whoever is
// looked at next finds it.

// change takes in what people have decided by now.
func (s *Scheduler) change(f Settings, now int64) {
	s.cancelled = make(map[string]bool, len(f.Cancelled))
	for _, id := range f.Cancelled {
		s.cancelled[id] = true
	}
	if s.policies != f.Policies {
		s.govern(f.Policies, now)
	}
	for scope := range s.paused {
		if _, still := f.Paused[scope]; !still {
			s.pause(scope, 0, now)
		}
	}
	for scope, until := range f.Paused {
		s.pause(scope, until, now)
	}
}

// govern puts policies in force. Bounds that were computed under others may be too late: all lanes
// in memory are looked at. For those that are not see [Lowered].
func (s *Scheduler) govern(p *Policies, now int64) {
	s.policies = p
	s.queue.rules, s.queue.limit = nil, Concurrency{}
	if p != nil {
		s.queue.rules, s.queue.limit = p.Queue, p.QueueConcurrency
	}
	for _, of := range s.instances {
		of.govern(p)
		s.arm(of, now)
	}
	for _, t := range s.tenants {
		t.policy = p.Of(t.name)
		t.rules, t.limit = t.policy.Tenant, t.policy.TenantConcurrency
		for _, u := range t.users {
			u.govern()
			for _, l := range u.lanes {
				l.calledFor = 0 // it may lie behind the end of an override
				if len(l.heads) > 0 {
					s.hold(l, l.heads) // it may be too late at another instant
				}
			}
		}
		if t.policy.DropOldest {
			s.over = append(s.over, t.name)
		}
		s.loosen(t, now)
	}
}

// pause notes until when a scope is paused; 0 lifts the pause.
func (s *Scheduler) pause(scope string, until, now int64) {
	if s.paused[scope] == until {
		return
	}
	if s.paused[scope] = until; until == 0 {
		delete(s.paused, scope)
	}
	for _, of := range s.instances {
		if of.bundles(scope) {
			of.paused = s.pausedUntil(of)
			s.arm(of, now)
		}
	}
	name, user := envelope.ParseScope(scope)
	t := s.tenants[name]
	switch of := s.instances[scope]; {
	case of != nil:
		of.paused = until
		s.arm(of, now)
	case strings.HasPrefix(scope, envelope.LimitScope): // nothing of it is in memory
	case name == "":
		s.queue.paused = until
		for _, t := range s.tenants {
			s.rouse(t, now)
		}
	case t == nil:
	case user == "":
		t.paused = until
		s.rouse(t, now)
	case t.users[user] != nil:
		u := t.users[user]
		u.paused = until
		for _, l := range u.lanes {
			if l.at != outside {
				s.wake(l, now)
			}
		}
	}
}
