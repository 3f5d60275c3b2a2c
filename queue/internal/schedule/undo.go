package schedule

import (
	"slices"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// A commit is refused as a whole, and all behind it are. What was decided in them has left its traces in the scheduler;
// each trace is removed in the way that cannot go wrong:
//
//	what runs             the claims are taken out again; those that the commit was to end are put back
//	shares of tenants     what was added is taken off
//	what rules remember   is not computed backwards: it is forgotten, and read when it is needed
//	first jobs of lanes   are read again; the lane gets the place in line back that it had
//	bounds for Redis      are noted as not written
//	what was to be read   is asked for again
//
// ADR 7 has the reasons.

// Undo tells that commits were refused: nothing of them has happened. They are given in the order
// in which they were sent, up to the last one. What the rules remember of the subjects concerned is
// read again, and so are the first jobs of the lanes. Lanes and tenants get back the places in line
// that they had.
func (s *Scheduler) Undo(commits []Commit, now int64) {
	if len(commits) == 0 {
		return
	}
	for _, c := range slices.Backward(commits) {
		s.undo(c, now)
	}
	s.share = min(s.share, commits[0].Plan.share)
	s.held = nil
}

// undo takes back one commit. Those behind it are taken back already.
func (s *Scheduler) undo(c Commit, now int64) {
	for _, start := range c.Plan.Starts {
		if start.counted {
			s.retract(start.Claim, now)
		}
		s.serve(s.tenant(start.Lane.Tenant), -start.Head.Env.Cost)
	}
	for _, of := range c.ended {
		s.claimed(s.tenant(of.Lane.Tenant).user(s, of.Lane.User), of, s.labelled(of.Lane))
	}
	for _, state := range c.States {
		s.doubt(state.of, now)
	}
	for _, left := range slices.Backward(c.Plan.Left) {
		s.putBack(left, now)
	}
	for _, p := range c.Parks {
		s.park(p.lane, p.lane.bound(), now)
	}
	s.needs.add(c.Needs)
}

// retract takes a claim out of what runs, and lets what it may have blocked be looked at.
func (s *Scheduler) retract(claim envelope.Claim, now int64) {
	if run, known := s.running.claims[claim]; known {
		s.unclaim(claim)
		s.unblock(run.user, now)
		s.unblock(run.user.tenant, now)
		for _, of := range run.named {
			s.unblock(of, now)
		}
	}
}

// doubt throws away what a subject remembers: it is read again when it is needed. What waits by it is
// looked at.
func (s *Scheduler) doubt(who toucher, now int64) {
	of := who.subjectOf()
	of.known, of.changed = false, false
	of.state.Reset()
	switch who := who.(type) {
	case *tenant:
		s.rouse(who, now)
	case *user:
		s.unblock(who, now)
	case *instance:
		s.opening.set(who, now)
	}
}

// putBack gives a lane the place in line that it had before its first job left it.
func (s *Scheduler) putBack(left Left, now int64) {
	t := s.tenant(left.Lane.Tenant)
	l := t.user(s, left.Lane.User).lane(left.Lane.Priority, left.Lane.Label)
	l.last, l.served = left.last, left.served
	s.read(l, min(left.bound, l.bound()))
	s.rouse(t, now)
}
