package schedule

import (
	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// A Fact is something that has happened, or will have with the next commit: one of the types of this
// file.
type Fact interface {
	// happened takes it in. It reports whether something may start by it that could not before, since a
	// concurrency limit was reached.
	happened(s *Scheduler, now int64) (frees bool)
}

// Step tells what has happened. It reports whether something may start by it that could not before, since a concurrency
// limit was reached: then whoever waits for the next instant of a plan decides at once.
func (s *Scheduler) Step(now int64, facts ...Fact) (frees bool) {
	if s.begun == 0 {
		s.begun = now
	}
	for _, f := range facts {
		frees = f.happened(s, now) || frees
	}
	return frees
}

// Settings are what people have decided by now. Nothing else changes with them: who was served, and
// what was read, is known on.
type Settings struct {
	Policies  *Policies
	Paused    map[string]int64 // scope → until when
	Cancelled []string         // IDs of jobs that never run
}

// Paused says until when a scope is paused; Until 0 lifts the pause.
type Paused struct {
	Scope string
	Until int64
}

// IDCancelled says that the job with that ID never runs.
type IDCancelled struct{ ID string }

// IDDropped says that a cancelled job has left its lane.
type IDDropped struct{ ID string }

// First says that a lane has got its first job.
type First struct {
	Lane envelope.Lane
	Head Head
}

// Changed says that the first jobs of a lane, or what bounds it, may have changed: it is
// read again, and so are the user's other lanes.
type Changed struct{ Lane envelope.Lane }

// Returned says that a job is the first of its lane again. A job that has started before comes in line now: Since is 0.
// One that has not goes to its former place in line: Since is the instant from which it has waited.
type Returned struct {
	Lane  envelope.Lane
	Since int64
}

// ClockSet says that the clock of a user is another one.
type ClockSet struct{ Tenant, User string }

// Replaced says that the lanes of a tenant are not what they were: its indexes are read again, and of
// each lane the first jobs. Lanes keep their places in line.
type Replaced struct{ Tenant string }

// Lowered says that Redis has lowered the bounds of a tenant's lanes: its indexes are read again.
type Lowered struct{ Tenant string }

// Running are all claims, as Redis holds them.
type Running []envelope.ClaimRef

// Ended are claims that have ended.
type Ended []envelope.Claim

// TakenBack says that a claim ends with the next commit.
type TakenBack struct{ Claim envelope.Claim }

// Refunded says that the slot of a claim is given back: to the rules of its user, and, with All, to all others that have
// counted it, since the job did not start at all. A limit by name is one of the user if it counts for each user. What these
// rules remember has to be known ([Scheduler.Knows]).
type Refunded struct {
	Claim envelope.Claim
	Env   *envelope.Envelope // its job, of which what limits count matters
	All   bool
}

// Granted says that a shared limit lets a job of a cost start at an instant: some job that it counts.
type Granted struct {
	Scope string
	rules.Grant
}

// Expected says that a shared limit has no grants before an instant.
type Expected struct {
	Scope string
	At    int64
}

// Leased says how many of the leased places of a limit there are: so many of its jobs may run here at once.
type Leased struct {
	Scope  string
	Places int
}

// Capacity is how many places the fleet has.
type Capacity int

// Far is how much longer before their slots than [Lead] jobs are given, in µs.
type Far int64

func (f Settings) happened(s *Scheduler, now int64) bool  { s.change(f, now); return false }
func (f Paused) happened(s *Scheduler, now int64) bool    { s.pause(f.Scope, f.Until, now); return false }
func (f IDCancelled) happened(s *Scheduler, _ int64) bool { s.cancelled[f.ID] = true; return false }
func (f IDDropped) happened(s *Scheduler, _ int64) bool   { delete(s.cancelled, f.ID); return false }
func (f First) happened(s *Scheduler, now int64) bool     { s.notice(f.Lane, f.Head, now); return false }
func (f Changed) happened(s *Scheduler, now int64) bool   { s.look(f.Lane, now); return false }
func (f Returned) happened(s *Scheduler, now int64) bool  { s.returned(f, now); return false }
func (f ClockSet) happened(s *Scheduler, now int64) bool {
	s.reset(f.Tenant, f.User, now)
	return false
}
func (f Replaced) happened(s *Scheduler, now int64) bool { s.forgetLanes(f.Tenant, now); return false }
func (f Lowered) happened(s *Scheduler, now int64) bool {
	s.loosen(s.tenant(f.Tenant), now)
	return false
}
func (f Running) happened(s *Scheduler, now int64) bool { return s.recount(f, now) }
func (f Ended) happened(s *Scheduler, now int64) (frees bool) {
	for _, claim := range f {
		frees = s.ended(claim, now) || frees
	}
	return frees
}
func (f TakenBack) happened(s *Scheduler, now int64) bool { return s.takenBack(f.Claim, now) }
func (f Refunded) happened(s *Scheduler, now int64) bool {
	s.refund(f, now)
	return false
}
func (f Granted) happened(s *Scheduler, now int64) bool  { s.grant(f, now); return false }
func (f Expected) happened(s *Scheduler, _ int64) bool   { s.expect(f); return false }
func (f Leased) happened(s *Scheduler, now int64) bool   { return s.lease(f, now) }
func (f Capacity) happened(s *Scheduler, now int64) bool { s.size(int(f), now); return false }
func (f Far) happened(s *Scheduler, _ int64) bool        { s.lead = Lead + int64(f); return false }
