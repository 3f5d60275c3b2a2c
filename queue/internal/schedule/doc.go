// Package schedule decides which job of a queue starts when. It is pure: no Redis, no
// clock, no goroutines.
//
// A [Scheduler] has three doors, and whoever runs it uses them in this order:
//
//	s.Step(now, facts...)           // what has happened: a lane has its first job, a claim has ended, …
//	c := s.Decide(now, places, n)   // what is to be written, and what is to be read after that
//	s.Learn(c, found, now)          // it was written, and this was read
//
// Decide counts what it decides as done. Several commits may be decided before the first of them is
// learned; they are learned in their order. One that was refused, with all that were decided after it, is taken back with
// [Scheduler.Undo] in the place of Learn. Where nobody knows whether a commit has happened, the
// scheduler is thrown away, and a new one reads everything again; it takes over who has been served
// ([Scheduler.TakeTurns]).
//
// Every lane has a bound: its next job does not start earlier. So has every tenant.
// Bounds are lower bounds, corrected lazily: when one comes, Decide computes
// the true slot of the first job, and either takes the job or moves the bound there. A
// blocked lane is one entry of a heap that nobody looks at before its bound. What waits for
// the end of another job, since so many run as may, has no bound until that has ended. Among
// the tenants whose bounds have come, the one that has been served least is next.
//
// A scheduler holds the front of what Redis holds: of each index those members that are
// due soon. What it lacks it lists in the [Needs] of a commit.
//
//	scheduler.go   a scheduler, and what can be asked of it
//	tree.go        the queue, its tenants, their users, their lanes, as far as they are in memory
//	facts.go       what can happen
//	change.go      people have decided something
//	reread.go      lanes have changed in Redis
//	returned.go    jobs come back, and slots are given back
//	running.go     jobs run, and end
//	decide.go      whose turn it is
//	slot.go        the slot of one job
//	take.go        what a job takes that has one
//	waited.go      what a job waited for until its slot
//	person.go      the clocks of users
//	hours.go       what differs where limits are closed at times
//	commit.go      what a decision hands out
//	needs.go       what has to be read before more can be decided
//	learn.go       what was read
//	undo.go        what was decided and did not happen
//	turns.go       what a new scheduler takes over from the one before
//	rest.go        what is forgotten
//	lines.go       the heaps in which tenants and lanes wait
//	named.go       limits by name: their instances, and which of them count a job
//	shared.go      limits that other queues and callers spend, too
//	wants.go       which of those are asked
//	costs.go       for how many jobs, and of which costs
//	leased.go      places of concurrency limits that count jobs of other partitions, too
//	bundle.go      several of these that count one job
//	named_lines.go the lines in which lanes wait for an instance
//	index.go       a heap of bounds, and the front of an index
//	policies.go, limits.go, head.go   policies, what limits a job, the first job of a lane
package schedule
