package faults

import (
	"fmt"
	"slices"
	"time"
)

// stood is how long a tenant with something due may be without starts beyond a fault: a second, and
// one more until the window of its user is over.
const stood = 2 * time.Second

// standstills counts the times in which a tenant started nothing for too long, although a job
// waited all the time of a user whose rules and whose running jobs did not object.
func (s *scene) standstills(executions []*execution) (found int) {
	tenants := make(map[string][]*execution)
	for _, e := range executions {
		tenants[e.Tenant] = append(tenants[e.Tenant], e)
	}
	for tenant, starts := range tenants {
		for i := 1; i < len(starts); i++ {
			from, to := s.beyond(tenant, starts[i-1].began, starts[i].began), starts[i].began
			if to.Sub(from) <= stood+starts[i].late {
				continue
			}
			if waits := s.waiting(starts, from, to); waits != nil && !s.crowded(starts, from, to) {
				found++
				s.t.Errorf("%s has started nothing from %s to %s, and %s of %s waited; harm: %v; %s",
					tenant, clock(from), clock(to), waits.ID, waits.User, s.harm, meanwhile(executions, from, to))
			}
		}
	}
	return found
}

// meanwhile says what has started between two instants. Where most starts are late the machine is short of CPU: a late job
// goes back and needs another slot, so that the queue starts fewer jobs than its rules allow.
func meanwhile(executions []*execution, from, to time.Time) string {
	all, late, latest := 0, 0, time.Duration(0)
	for _, e := range executions {
		if e.began.After(from) && e.began.Before(to) {
			all++
			if e.late > 5*time.Millisecond {
				late++
			}
			latest = max(latest, e.late)
		}
	}
	return fmt.Sprintf("%d others started meanwhile, %d of them more than 5 ms after their slots, by up to %v", all, late, latest)
}

// A hold is a time in which a tenant, or a user if one is named, was not to start anything.
type hold struct {
	tenant, user string
	from, to     time.Time
}

// beyond returns since when nothing was broken, and the tenant was not held, in a time without
// starts.
func (s *scene) beyond(tenant string, from, to time.Time) time.Time {
	later := func(begin, end time.Time) {
		if begin.Before(to) && end.After(from) {
			from = end
		}
	}
	for _, h := range s.harm {
		later(h.at, h.since())
	}
	for _, h := range s.held {
		if h.tenant == tenant && h.user == "" {
			later(h.from, h.to)
		}
	}
	return from
}

// waiting returns a job that waited for its first start all the time, of a user of whom nothing
// ran and who was not held.
func (s *scene) waiting(starts []*execution, from, to time.Time) *execution {
	busy := make(map[string]bool)
	for _, e := range starts {
		if e.began.Before(to) && (e.ended.IsZero() || e.ended.After(from)) {
			busy[e.User] = true
		}
	}
	for _, h := range s.held {
		if h.tenant == starts[0].Tenant && h.from.Before(to) && h.to.After(from) {
			busy[h.user] = true
		}
	}
	i := slices.IndexFunc(starts, func(e *execution) bool {
		a, accepted := s.accepted[e.ID]
		return accepted && !busy[e.User] && a.came.Before(from) && !e.began.Before(to) && e.Attempt == 1
	})
	if i < 0 {
		return nil
	}
	return starts[i]
}

// crowded tells whether the limit of the tenant's jobs at once may have kept all from starting. Until its
// lease is over a killed worker holds jobs, some of which nobody has seen begin.
func (s *scene) crowded(starts []*execution, from, to time.Time) bool {
	const unseen = 2
	n := 0
	for _, h := range s.harm {
		if h.worker != "" && h.at.Before(to) && h.at.Add(lease+time.Second).After(to) {
			n += unseen
		}
	}
	for _, e := range starts {
		if e.began.Before(to) && (e.ended.IsZero() || e.ended.After(from)) {
			n++
		}
	}
	return n >= s.tenantAtOnce()
}
