// Package leader decides for a queue as long as its worker leads.
//
// A term goes round ([term.round]): it takes in what it was told, decides with package schedule, and
// writes all that was decided into one commit, which Redis does as a whole or not at all. Everything
// that a term knows is a copy of what Redis holds. After any doubt it reads that again.
//
// What holds at any time:
//
//   - Redis does no commit that was decided by an outdated copy: the token, the number, the number of changes and the
//     checks of the commit refuse it.
//   - No commit is sent twice. A refused one is undone in memory, and its jobs are decided about anew.
//   - No round waits for the work of one tenant or worker: what reads much runs beside the rounds, and what has to be
//     mended is mended some hundred jobs at a time.
//   - One goroutine, that of the rounds, touches a term.
//
// The files:
//
//	lead.go       a term from its beginning to its end
//	term.go       what a term knows
//	resync.go     what is read before anything is decided, and again after any doubt
//	round.go      one round: mend what has to be mended, then decide
//	wait.go       a round waits, and takes in what has come meanwhile
//	inflight.go   a commit: what is written into it
//	outcome.go    what follows when it is known whether it has happened
//	flights.go    several commits under way, and what happens when one of them fails
//	shared.go     limits that other queues and callers spend, too: what is asked of them
//	grants.go     what they answer, and what is given back
//	leases.go     places of concurrency limits that count jobs of other partitions, too
//	reading.go    what the scheduler lacks, read with commits
//	query.go      a term reads by another connection where one has died
//	notices.go    what the leader is told by others
//	requests.go   notices about claims, which have their effect in a commit
//	muster.go     who works, read once a second
//	fleet.go      which worker gets the next job
//	lateness.go   whether this worker has enough CPU to lead
//	reap.go       the jobs of a dead worker come back
//	requeue.go    jobs come into their lanes from elsewhere
//	later.go      what time brings: jobs whose time has come, pauses that are over
//	trim.go       the oldest jobs of a backlog make room
//	sweep.go      bounds in Redis are lowered when policies have changed
package leader
