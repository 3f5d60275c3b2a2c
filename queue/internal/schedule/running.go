package schedule

import (
	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// Concurrency limits count claims, from the decision until the end is known. An end that is learned late holds a place
// for longer, and never gives one away twice. A job that one of the limits blocks has no bound in the heaps (blocked):
// nobody can say when a place will be free. The end of a job lowers it again.

// running is what a scheduler knows of the jobs that run: all claims, from the decision
// until their end is known. It is never less than what Redis holds, since only the leader
// makes claims and others only end them.
type running struct {
	claims  map[envelope.Claim]run
	workers map[string]int      // how many each worker has
	places  int                 // of the fleet
	ended   []envelope.ClaimRef // by the next commit
}

// A run is a job that runs.
type run struct {
	user   *user
	named  []*instance // limits by name that count it
	worker string
}

// counts calls do with everybody for whom a run counts.
func (r run) counts(s *Scheduler, do func(toucher)) {
	do(s)
	do(r.user.tenant)
	do(r.user)
	for _, of := range r.named {
		do(of)
	}
}

// blocked is the bound of what a concurrency limit blocks: the end of a job lowers it.
const blocked = Never - 1

// Held returns how many jobs a worker has.
func (s *Scheduler) Held(worker string) int { return s.running.workers[worker] }

// Runs reports whether any worker has a job.
func (s *Scheduler) Runs() bool { return len(s.running.workers) > 0 }

// most returns how many jobs of a subject may run at once, which has a concurrency limit.
func (s *Scheduler) most(u *subject) int {
	n := u.limit.Most(s.running.places)
	if u.leases {
		n = min(n, u.leased)
	}
	return n
}

// full reports whether as many jobs of a subject run as may.
func (s *Scheduler) full(u *subject) bool { return u.limit.Limits() && u.running >= s.most(u) }

// crowded reports whether a subject is half full: others may wait for the end of a job.
func (s *Scheduler) crowded(u *subject) bool {
	return u.limit.Limits() && 2*u.running >= s.most(u)
}

// claimed notes a job of a user that runs, for the worker and for whoever counts it. It reports whether that
// was unknown: a claim that is told of twice counts once.
func (s *Scheduler) claimed(u *user, c envelope.ClaimRef, named []*instance) (unknown bool) {
	if _, known := s.running.claims[c.Claim]; known {
		return false
	}
	r := run{u, named, c.Worker}
	s.running.claims[c.Claim] = r
	s.running.workers[c.Worker]++
	r.counts(s, func(who toucher) {
		of := who.subjectOf()
		if of.running++; of.limit.Limits() && of.running == s.most(of) {
			of.fullSince = c.Slot
		}
		s.noteLeasing(who)
	})
	return true
}

// ended notes that a job runs no more. It reports whether something may start that could
// not: a concurrency limit of one of its subjects was reached, and is reached no more; or its place goes to another partition. An end
// that is told of twice has no effect.
func (s *Scheduler) ended(claim envelope.Claim, now int64) (frees bool) {
	run, known := s.running.claims[claim]
	if !known {
		return false
	}
	var full []toucher
	run.counts(s, func(who toucher) {
		if s.full(who.subjectOf()) {
			full = append(full, who)
		}
	})
	s.unclaim(claim)
	for _, who := range full {
		of := who.subjectOf()
		if !s.full(of) {
			of.fullUntil = now
			s.unblock(who, now)
		}
		frees = frees || of.leases || !s.full(of)
	}
	return frees
}

// takenBack ends a claim with the next commit.
func (s *Scheduler) takenBack(claim envelope.Claim, now int64) (frees bool) {
	if run, known := s.running.claims[claim]; known {
		s.running.ended = append(s.running.ended, envelope.ClaimRef{Worker: run.worker, Claim: claim})
		frees = s.ended(claim, now)
	}
	return frees
}

// unclaim takes a job out of what runs.
func (s *Scheduler) unclaim(claim envelope.Claim) {
	run, known := s.running.claims[claim]
	if !known {
		return
	}
	delete(s.running.claims, claim)
	if s.running.workers[run.worker]--; s.running.workers[run.worker] == 0 {
		delete(s.running.workers, run.worker)
	}
	run.counts(s, func(who toucher) { who.subjectOf().running-- })
	if run.user.quiet() {
		s.rest(run.user)
	}
	for _, of := range run.named {
		s.restInstance(of)
	}
}

// recount takes in all that runs, as Redis holds it: claims that were unknown, and ends that were not told. No commit
// is under way then: a claim that was decided and is not in Redis yet would count as ended.
func (s *Scheduler) recount(claims []envelope.ClaimRef, now int64) (frees bool) {
	there := make(map[envelope.Claim]bool, len(claims))
	for _, c := range claims {
		there[c.Claim] = true
		s.claimed(s.tenant(c.Lane.Tenant).user(s, c.Lane.User), c, s.labelled(c.Lane))
		s.rouse(s.tenant(c.Lane.Tenant), now) // the index does not bring one that is known
	}
	for claim := range s.running.claims {
		if !there[claim] {
			frees = s.ended(claim, now) || frees
		}
	}
	return frees
}

// size notes how many places the fleet has.
func (s *Scheduler) size(n int, now int64) {
	if n == s.running.places {
		return
	}
	s.running.places = n
	for _, t := range s.tenants {
		if t.running > 0 {
			s.unblock(t, now)
		}
	}
	for _, run := range s.running.claims {
		s.unblock(run.user, now)
		for _, of := range run.named {
			s.unblock(of, now)
		}
	}
}

// unblock lets what a limit may have blocked be looked at.
func (s *Scheduler) unblock(who toucher, now int64) {
	switch who := who.(type) {
	case *tenant:
		s.rouse(who, now)
	case *user:
		for _, l := range who.lanes {
			if l.at != outside {
				s.wake(l, now)
			}
		}
	case *instance:
		s.arm(who, now)
	}
}
