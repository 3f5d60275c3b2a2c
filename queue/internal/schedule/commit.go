package schedule

import "github.com/waterclock/waterclock/queue/internal/envelope"

// A decision hands out all that follows from it at once, as one value: what leaves the lanes, what the rules remember
// by then, which bounds Redis should know, and what is to be read. Whoever runs the scheduler writes it as a whole or
// not at all. The value also holds what was there before, so that a commit which was refused can be undone (undo.go).

// A Commit is what is to be written and read together. For the scheduler it counts as done from then on.
type Commit struct {
	Plan   Plan
	States []State // what rules remember by now
	Parks  []Park  // bounds of lanes
	Needs  Needs   // to be read after that

	ended []envelope.ClaimRef
}

// A Plan is what was decided.
type Plan struct {
	Starts []Start
	Drops  []Drop
	Left   []Left // all jobs that leave their lanes, in their order
	Next   int64  // when there is more to decide, if nothing happens before
	Hungry bool   // jobs are due and there is no place for them

	share int64 // of the tenant that was served last before it
}

// A Start is the decision to start a job: from when it may start is the slot of its claim.
type Start struct {
	envelope.Claim
	Head   Head
	Worker string
	// Awaited says that others may wait for the end of the job.
	Awaited   bool
	Wait      Wait     // what it waited for
	Objection string   // name of a shadow rule that would not have let it start so early; "" for none
	Limits    []string // names of the limits by name that count it; they are not changed

	counted bool // as a job that runs, by this decision: what was read before may bring a job once more
}

// A Drop is the decision that a job never runs.
type Drop struct {
	Lane         envelope.Lane
	Head         Head
	Reason, Rule string // Reason is one below, or "" for a job that cannot be read
	Counted      []Counted
}

// A Counted says which shared limits that decide together count a job though it was refused, and what it costs each of them.
type Counted struct {
	Parts []Part
	Costs []int
}

// The reasons of drops.
const (
	Expired   = "expired"
	Refused   = "rule"
	Cancelled = "cancelled"
	Full      = "full"
)

// A Left is a job that leaves its lane.
type Left struct {
	Lane  envelope.Lane
	Begin string // how its entry begins

	bound, last int64 // of its lane before
	served      uint64
}

// A State is what the rules of a subject remember, to be written.
type State struct {
	Scope, Text string  // Text is "" if there is nothing to remember
	Until       int64   // from then on it equals nothing, and may be forgotten
	of          toucher // whose it is: after a refusal it is read again
}

// A Park is a lane's bound that Redis should know. When it does, the lane is forgotten until the bound comes, unless it may
// be due before.
type Park struct {
	Lane  envelope.Lane
	At    int64 // the bound
	lane  *lane
	early bool // it may be due before
}

// Amend returns what there is to write and to read before more is decided: a commit without a plan.
func (s *Scheduler) Amend(now int64) Commit { return s.commit(Plan{}, now) }

// commit puts together what has come to be written since the commit before.
func (s *Scheduler) commit(p Plan, now int64) Commit {
	c := Commit{Plan: p, States: s.states(now), Parks: s.parks(now), Needs: s.needs, ended: s.running.ended}
	s.needs, s.running.ended = Needs{}, nil
	return c
}

// states returns what has changed since it was asked last. The order of commits is that of the calls: the last one has
// the newest state.
func (s *Scheduler) states(now int64) []State {
	states := make([]State, 0, len(s.touched))
	for _, who := range s.touched {
		of := who.subjectOf()
		if !of.changed { // in doubt since
			continue
		}
		of.changed = false
		of.rules.Forget(&of.state, now)
		s.text = of.state.Append(s.text[:0])
		states = append(states, State{who.scope(), string(s.text), of.rules.Full(&of.state), who})
	}
	s.touched = s.touched[:0]
	return states
}

// parks returns the bounds that have moved far since they were noted last, or to an earlier instant. The latter are now:
// what is early is never wrong, and what the lane waits for by now may be a pause, which may end before.
func (s *Scheduler) parks(now int64) (parks []Park) {
	for _, l := range s.parked {
		early, bound := l.early, l.bound()
		l.parked, l.early = false, false
		switch {
		case early:
			parks = append(parks, Park{l.name(), min(bound, now), l, true})
		case !l.asked && bound < blocked:
			parks = append(parks, Park{l.name(), bound, l, false})
		}
	}
	s.parked = s.parked[:0]
	return parks
}

// park notes that a lane's bound has moved so far that Redis should know, and that the
// lane need not be remembered until then. Redis also has to know when the lane may be due before the bound that Redis has:
// a job that costs more has left it. Where both are noted before the next commit, the last one holds. A lane with a label
// is remembered: whoever lowers the bounds of all lanes of a user in Redis does not know which labels there are.
func (s *Scheduler) park(l *lane, at, now int64) {
	const far = 1_000_000
	early, late := at < l.noted, at-now > far && at-l.noted > far
	if !early && !late && !l.parked || l.label != "" {
		return
	}
	l.early = early
	if !l.parked {
		l.parked = true
		s.parked = append(s.parked, l)
	}
}

// noted notes that Redis knows the bounds: the lanes need not be remembered until then.
func (s *Scheduler) noted(parks []Park) {
	for _, p := range parks {
		l := p.lane
		index := l.index()
		l.noted = p.At
		if p.early || l.asked || l.bound() != p.At {
			continue
		}
		index.due.remove(l)
		s.hold(l, nil)
		index.lower(p.At)
		s.rest(l.user)
	}
}
