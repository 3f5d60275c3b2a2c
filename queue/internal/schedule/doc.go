// Package schedule decides which job of a queue starts when. It is pure: no Redis, no
// clock, no goroutines. A [Scheduler] is told facts (what waits, what the rules of a
// subject remember, what is paused) and returns decisions for an instant.
//
// Every lane has a bound: its next job does not start earlier. So has every tenant.
// Bounds are lower bounds, corrected lazily: when one comes, [Scheduler.Decide] computes
// the true slot of the first job, and either takes the job or moves the bound there. A
// blocked lane is one entry of a heap that nobody looks at before its bound. What waits for
// the end of another job, since so many run as may, has no bound until that has ended. Among
// the tenants whose bounds have come, the one that has been served least is next.
//
// A scheduler holds the front of what Redis holds: of each index those members that are
// due soon. What it lacks it lists in [Needs]; whoever runs it reads that and tells it.
// A commit that was refused is undone. Where nobody knows whether a commit has happened, the scheduler
// is thrown away and a new one reads everything again; it takes over who has been served.
//
// The files: decide.go whose turn it is; slot.go the slot of one job; learn.go what Redis holds; change.go
// what people have decided; running.go how many run at once; amend.go what changes a decision afterwards
// (late starts, refunds); undo.go what was decided and did not happen; index.go bounds.
package schedule
