// Package fleet is a test of the commands as they are deployed: as processes on a real Redis, watched from outside.
//
//	go test -v ./test/fleet                                                # what a rolling upgrade does
//	WATERCLOCK_EXHAUSTIVE=1 go test -v -run Footprint ./test/fleet         # what a worker and serve take, 2.5 min
//
// TestRollingUpgrade replaces three workers one by one, as a Deployment does that has maxSurge 1 and maxUnavailable 0. The
// judge is the endpoint to which they send webhooks (judge_test.go): it knows what it was sent and when, by its own clock,
// and shares no code with the workers.
package fleet
