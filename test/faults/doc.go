// Package faults is a test: it keeps a queue draining through worker processes on real
// servers, breaks something at random instants, and judges afterwards whether the
// promises were kept.
//
//	go test -run Fault ./test/faults -v                                 # a few faults, drawn by a seed
//	WATERCLOCK_SEED=7 go test -run Fault ./test/faults -v               # the same ones, at the same instants
//	WATERCLOCK_EXHAUSTIVE=1 go test -run Fault ./test/faults -v         # all faults
//	WATERCLOCK_EXHAUSTIVE=1 WATERCLOCK_FAULT_ROUNDS=5 go test -run Fault ./test/faults -v -timeout 1h
//
// A scene (scene_test.go) is a Redis, policies, a producer that offers jobs with IDs of
// their own and remembers the receipts, and a crew of workers (crew_test.go): processes
// of this test binary that write down each start and each end of a handler, one write
// for one line, so that a kill loses nothing that happened. A fault (fault_test.go) does
// its harm to the scene and notes when, and to whom. Then everything has to drain, and
// the verdict (verdict_test.go) compares what was promised with what was written:
//
//   - lost: accepted jobs that neither started nor were dropped with a reason;
//   - twice: jobs that ran more than once. Each time the execution before must have been
//     in the hands of a worker that was killed or frozen right then;
//   - violations of the rules, found by throttle.Verify in the log of starts: by the clock
//     that the worker believed in, and by the machine's own, but not while Redis's clock is set;
//   - standstills, where the scene asks for them: a tenant starts nothing for long while a job
//     waits of a user whose rules and whose running jobs do not object;
//   - recovery: how long after the fault its jobs, or any jobs, started again.
//
// TestUnderFire (fire_test.go) lets malformed jobs of every kind (spoil_test.go) run beside
// good ones. TestLargePayloadsDelayNobody (large_test.go) measures what large payloads do.
//
// Nothing here asks whether a worker notices a fault, or how: only the log counts.
package faults
