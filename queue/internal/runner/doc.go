// Package runner is a worker's part in one queue. It runs jobs at their slots, keeps the
// worker's lease, and leads the queue when it is this worker's turn.
//
// The files: runner.go the whole; member.go what every worker does to be given jobs;
// job.go one job from its claim to its end; claims.go what is held and what has ended;
// leader.go a term of leadership, round by round; round.go from a plan to a commit;
// letters.go what the leader is told; fleet.go who works, and whose jobs come back;
// reading.go what the scheduler lacks; clock.go Redis's clock.
package runner
