// Package leader decides for a queue as long as its worker leads.
//
// A term goes round ([term.round]): it takes in what it was told, decides with package schedule, and
// writes all that was decided into one commit, which Redis does as a whole or not at all. Everything
// that a term knows is a copy of what Redis holds. After any doubt it reads that again.
//
//	round.go      one round: mend what has to be mended, then decide
//	inflight.go   a commit: what is written into it, and what follows when it has happened
//	flights.go    several commits under way, and what happens when one of them fails
//	reading.go    what the scheduler lacks, read with commits
//	mail.go       what the leader is told by others
//	fleet.go      who works, and which of them gets the next job
//	reap.go       the jobs of a dead worker come back
//	requeue.go    jobs come into their lanes from elsewhere
//	trim.go       the oldest jobs of a backlog make room
//	sweep.go      bounds in Redis are lowered when policies have changed
//	term.go       a term from its beginning to its end
package leader
