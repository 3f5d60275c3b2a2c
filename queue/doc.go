// Package queue is a work queue that starts each job at the instant its limits allow.
//
// A [Job] belongs to one user of one tenant. It waits in that user's lane, a FIFO line
// in Redis, until its slot comes: the earliest instant that suits the rules of the
// queue, of its tenant and of its user (package throttle). A worker pulls it at that
// moment and not before, so that nothing polls blocked jobs, rules that change govern
// the jobs that wait already, and no tenant stands in front of another.
//
// The way of a job, and the file that is about it:
//
//	job.go, envelope.go    what a job is, and how it travels (envelopes.lua)
//	client.go  offer.lua   a producer offers jobs and gets a receipt for each
//	inbox.go, task.go      the other door: tasks of ordinary asynq producers
//	lanes.lua              lanes, buckets and the index of who is due next
//	puller.go  pull.lua    a worker takes what may start now, and sleeps until more may
//	                       (upkeep.lua, lines.lua: what every pull does, how it reads)
//	run.go     admit.lua   the handler starts at the slot, never before (late.go: after)
//	lease.go   claims.lua  claims: renewed, acknowledged, failed, taken back
//	policy.go, policyfile.go  the rules of everybody, live in Redis
//	inspector.go, explain.go  what there is, and why it waits
//	control.go, pause.go   pauses, cancelled, purged and revived jobs
//
// # Promises
//
// Starts keep the rules of their user and tenant in the whole fleet, through crashes
// and wrong worker clocks. An accepted job is started at least once, or dropped with a
// reason that [Inspector.Drops] lists. A waiting job is touched once when it is offered
// and once when it is pulled. Handlers are asynq handlers and may run a job twice if
// their worker dies: make them idempotent.
package queue
