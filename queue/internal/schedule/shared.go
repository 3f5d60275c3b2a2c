package schedule

import (
	"iter"
	"slices"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/throttle"
)

// A shared limit is spent by several queues, and by callers that have no queue. So its rules are not decided here but in Redis, by
// a script, for all of them. What is decided there are instants: a scheduler says how many it wants (wants.go), and is told which
// ones it has (Granted). A grant lets one job start at its instant, whichever job has its turn by then. What the scheduler lacks
// of them it waits for as for any limit: the lanes stand in the limit's line, which opens with the first grant.
//
// Each grant is used by one commit at most, since it is taken from the state when the job is. It lies some milliseconds
// ahead. What is not used by then is given back (Missed), and so is what a job has used that comes back without a start.
// Grants are known to one scheduler alone. They end with it: whoever leads next asks for others.

// A job that several shared limits count needs an instant at which all of them let it start, and they decide about it together.
// So all jobs that the same ones count have one line (bundle.go).

// Shared are the rules of a shared limit, or of several that decide together: as they are decided in Redis, and as a scheduler knows
// them, which are its grants.
type Shared struct {
	Parts  []Part
	Grants *rules.Set
}

// Of returns the rules of one shared limit for a scope.
func (s *Shared) Of(scope string) *Shared {
	part := s.Parts[0]
	part.Scope, part.Key = scope, part.Key+scope
	return &Shared{[]Part{part}, s.Grants}
}

// counts reports whether one of the rules counts what was refused.
func (s *Shared) counts() bool {
	return s != nil && slices.ContainsFunc(s.Parts, func(p Part) bool { return slices.ContainsFunc(p.Rules, throttle.Rule.CountsDropped) })
}

// RuleName returns the name of a rule of a part, as it stands in drops and counters.
func (p Part) RuleName(rule string) string {
	limit, _, _ := envelope.ParseLimitScope(p.Scope)
	return nameOf(limit, rule)
}

// A Part is one of the shared limits that decide together. Where it is decided its key names it: of a limit that the partitions of one
// queue share, the queue's name and a slash stand before the scope.
type Part struct {
	Scope string
	Key   string
	Rules []throttle.Rule

	Weight int // in a want: of the tenants that wait for it, together
}

// A Missed grant was not used in time, or the job that has used it was returned without a start.
type Missed struct {
	Scope string
	rules.Grant
	Returned bool
}

// mostLate is how far ahead a job may go at most, in µs, since it was late before: once it has such an instant, nobody who shares the
// limit gets an earlier one. A job that would need to go further may be late again, and is tried again.
const mostLate = 20_000

// The lanes of a line that are looked at for one that can use a grant which the first one cannot.
const (
	mostPassed      = 64  // tenants
	mostPassedOf    = 32  // lanes of a tenant
	mostPassedLanes = 256 // lanes of all of them
)

// nextOf returns the lane of a line that is called next: the first one. The grants of a shared limit may lie before the first one may start,
// since its tenant or its user has to wait a little. They are for the first of the others that they are of use to: otherwise they would be
// lost, and all lanes would wait.
func (s *Scheduler) nextOf(i *instance, now int64) *lane {
	next := i.first()
	if next == nil || len(i.urgent) > 0 || len(i.state.Grants()) == 0 || s.opensFor(i, next, now) < rules.Never {
		return next
	}
	share, turn := int64(rules.Never), int64(0) // of its tenant in the line, and of it among the lanes of its tenant
	for l := range i.passing() {
		t := l.user.tenant
		if own := i.of[t].lanes.bound(l); (t.share < share || t.share == share && own < turn) && s.opensFor(i, l, now) < rules.Never {
			next, share, turn = l, t.share, own
		}
	}
	return next
}

// passing yields the lanes of a line that may go before the first one.
func (i *instance) passing() iter.Seq[*lane] {
	return func(yield func(*lane) bool) {
		left := mostPassedLanes
		for _, w := range i.line.entries[:min(i.line.len(), mostPassed)] {
			lanes := &w.item.lanes
			n := min(lanes.len(), mostPassedOf, left)
			left -= n
			for _, l := range lanes.entries[:n] {
				if !yield(l.item) {
					return
				}
			}
		}
	}
}

// grant takes in a grant.
func (s *Scheduler) grant(f Granted, now int64) {
	i := s.instances[f.Scope]
	if i == nil || i.shared == nil {
		return
	}
	i.state.Grant(f.Grant)
	s.wanting[i] = true
	s.arm(i, now)
}

// expect notes from when on there may be grants.
func (s *Scheduler) expect(f Expected) {
	if i := s.instances[f.Scope]; i != nil {
		i.expected = f.At
	}
}

// lacksGrant returns the shared limit that has no grant for the job of the decision, where that is what keeps it from having a
// slot; nil if it has one.
func (d *decision) lacksGrant(slot int64) *instance {
	if slot < rules.Never {
		return nil
	}
	for _, of := range d.of[commonLimits:] {
		if i := of.who.(*instance); i.shared != nil {
			return i
		}
	}
	return nil
}

// usable returns from when on a grant lets the first job of a lane start.
func (s *Scheduler) usable(l *lane, now int64) int64 {
	return max(now+s.aheadOf(l), s.ungranted(l, now))
}

// aheadOf returns how far ahead a grant has to lie for the first job of a lane, so that its worker is told in time.
func (s *Scheduler) aheadOf(l *lane) int64 { return max(l.ahead, s.far) }

// shares reports whether one of the limits of the decision is shared.
func (d *decision) shares() bool {
	return slices.ContainsFunc(d.of[commonLimits:], func(s share) bool { return s.who.(*instance).shared != nil })
}

// ungranted returns the first instant from now on at which pauses and all limits that are not shared let the first job of a lane start, and
// not before the job that it follows.
func (s *Scheduler) ungranted(l *lane, now int64) int64 {
	u, env := l.user, l.heads[0].Env
	if env == nil {
		return now
	}
	at, drop := max(now, l.last), false
	s.others = s.others[:0]
	add := func(of *subject, cost int) {
		at = max(at, of.paused)
		drop = drop || of.rules.Drops()
		s.others = append(s.others, Remembered{of.rules, &of.state, cost})
	}
	add(&s.queue, env.Cost)
	add(&u.tenant.subject, env.Cost)
	add(&u.subject, env.Cost)
	for _, of := range l.counted.shares {
		if of.who.(*instance).shared == nil {
			add(of.of, of.cost)
		}
	}
	if drop {
		return Admitted(s.others, at, s.reach)
	}
	return Earliest(s.others, at)
}
