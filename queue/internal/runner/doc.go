// Package runner is a worker's part in one queue. It runs jobs at their slots, keeps the
// worker's lease, and leads the queue when it is this worker's turn.
//
// Every worker runs the jobs that it is given: member.go keeps its lease and takes what the
// leader puts into its hand, job.go brings one claim to its start and outcome.go to its end,
// claims.go holds what is claimed and tells what has ended, places.go bounds how many run at
// once, clock.go estimates Redis's clock.
//
// The leader decides as well, round by round: leader.go is a term from its beginning to its
// end, round.go one round, bundle.go the commit of a plan and what follows from it,
// flights.go the commits under way and what happens when one fails, reading.go what the
// scheduler lacks, letters.go what the leader is told, fleet.go who works and whose jobs come
// back, trim.go makes room where the oldest job is to go, sweep.go lowers bounds when policies
// have changed.
package runner
