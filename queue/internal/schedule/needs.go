package schedule

import (
	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// What the scheduler lacks is read behind the writes of a commit, in the same script. So what is read is the state
// after the commit, and nothing can have happened between. Whatever needs something waits for it: a tenant keeps out of
// the heaps until its states and its lanes' first jobs are there.

// Needs are what a scheduler has to be told before it can decide on.
type Needs struct {
	Tenants Span            // of the index of tenants
	Lanes   []LanesNeed     // of indexes of lanes
	Heads   []envelope.Lane // whose first jobs are needed
	States  []string        // scopes whose rules' memory is needed
}

// A Span asks for the members of an index from a bound on, N at most; 0 asks for nothing. Of those with that bound it asks for
// the ones behind a member, in the order of Redis, which may have left the index; for all if that is "".
type Span struct {
	From  int64
	After string
	N     int
}

// A LanesNeed asks for lanes of a tenant and priority.
type LanesNeed struct {
	Tenant   string
	Priority int
	Span
}

// continues reports whether members with that bound were read before.
func (s Span) continues(bound int64) bool { return s.After != "" && s.From == bound }

// Empty reports whether nothing is needed: then no commit has to be sent for the sake of reading.
func (n Needs) Empty() bool {
	return n.Tenants.N == 0 && len(n.Lanes)+len(n.Heads)+len(n.States) == 0
}

// add adds what other commits were to read.
func (n *Needs) add(other Needs) {
	if other.Tenants.N > 0 {
		n.Tenants = other.Tenants
	}
	n.Lanes = append(n.Lanes, other.Lanes...)
	n.Heads = append(n.Heads, other.Heads...)
	n.States = append(n.States, other.States...)
}

// ask asks for what is remembered of a subject.
func (s *Scheduler) ask(who toucher) {
	if of := who.subjectOf(); !of.known && !of.asked {
		of.asked = true
		s.needs.States = append(s.needs.States, who.scope())
	}
}

// read asks for the first jobs of a lane. It comes in again at the bound, if there are any.
func (s *Scheduler) read(l *lane, bound int64) {
	s.hold(l, nil)
	l.heap().remove(l)
	if !l.asked {
		l.asked = true
		s.needs.Heads = append(s.needs.Heads, l.name())
	}
	l.index().reading.set(l, bound)
}
