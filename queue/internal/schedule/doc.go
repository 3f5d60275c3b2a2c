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
// The files: facts.go what can happen; decide.go whose turn it is; slot.go the slot of one job; learn.go what
// Redis holds; change.go what people have decided; running.go how many run at once; amend.go what
// changes a decision afterwards (late starts, refunds); undo.go what was decided and did not happen; index.go
// bounds.
package schedule
