// Package worker is a worker's part in one queue beside leading it: it keeps the worker's lease, takes
// what the leader gives it, and runs that.
//
// The way of a claim: [Worker.TakeMessages] takes it out of the worker's mailbox, a list in Redis into which
// the leader writes (mailbox.go). [Worker.Accept] takes it in, unless it has come before (claims.go
// argues that), waits for a place (places.go), opens the job (open.go), waits for its slot by Redis's clock, and calls the handler
// (job.go). The outcome is an end, a failure or a return (outcome.go). Ends are told together, by
// [Claims.AckAll] or with a commit of the leader, if that is this worker (acks.go).
//
// What becomes of jobs with the callers' own IDs is noted beside all that, for whoever asks later (past.go).
//
// [Worker.Beat] keeps the lease, and finds by it what was lost on the way (lease.go): Redis says with
// each beat how many claims it has of this worker. Where the numbers differ, the worker compares the
// claims themselves (reconcile.go).
//
// What holds at any time:
//
//   - A claim starts once, however often the worker hears of it.
//   - Nothing starts before its slot, nor later than the rules have allowed for: a late job goes back to the leader.
//   - A claim is held, or returned, until Redis is known to have ended it. An end that cannot be told is tried again;
//     if the worker's time runs out first its lease ends, and the job runs again elsewhere.
//   - No clock of the machine decides anything: instants are on Redis's clock, as package clock estimates it.
//
// [Worker.Shutdown] says in which order a worker stops (stop.go).
package worker
