// Package queue is a work queue that starts each job at the instant its limits allow.
//
// A [Job] belongs to one user of one tenant. Rules of three scopes limit it: those of the queue,
// of its tenant and of its user. Package throttle has the rules, and [Policies] assign them.
// Together they give the job its slot, the earliest instant at which it may start:
//
//   - the slot has come: the job starts as soon as a worker has a place for it,
//   - the slot lies ahead: the job is deferred, and waits in its lane until then,
//   - a rule refuses it, or the slot lies behind [Job.StartBy]: the job is dropped, with a
//     [Reason].
//
// A lane is the first-in, first-out line of one user's waiting jobs of one priority. A job is
// read or written when it is offered and when its slot is near, and not in between. The rules are
// evaluated when a job is first in its lane, so that a changed policy governs the jobs that wait
// already.
//
// # A producer
//
// [Client.Enqueue] offers jobs in batches and returns a [Receipt] for each: its place in
// line and an estimate of its start, or why it was dropped.
//
//	client, err := queue.NewClient(rdb, "push")
//	if err != nil {
//		return err
//	}
//	receipts, err := client.Enqueue(ctx,
//		queue.Job{Tenant: "school-7", User: "teacher-42", Type: "push", Payload: text},
//	)
//
// Programs that use asynq keep its client. The headers of [Headers] turn an asynq task into a
// job; [NewTask] makes a task with all fields of a job. Workers with an inbox
// ([WorkerConfig.Inbox]) take such tasks into their lanes.
//
// # A worker
//
// [Worker.Run] runs an [asynq.Handler] for each job at its slot. A handler's error decides
// what becomes of the job:
//
//	nil, asynq.RevokeTask    the job is done
//	any other error          a failed attempt; the next one after WorkerConfig.RetryDelay
//	asynq.SkipRetry          a failed attempt, and the last: the job is dead
//	Retry                    a failed attempt, with the time and the priority of the next
//	Pause                    no attempt: this job and others of the user, the tenant or the queue wait
//	RefundUser               what the error in it says, and the user gets the slot back
//
// Any number of workers share a queue, and each may stop or die at any time. One of them leads:
// it decides which job starts when and on which worker. If it dies, another worker leads within
// about half a second. Offers, acknowledgements and all calls of [Inspector] work without a
// leader.
//
// # An operator
//
// [Inspector] shows which jobs wait and why ([Inspector.Explain], [Inspector.Stats]), which were
// dropped and which are dead. It also steers the queue: it sets policies, pauses, and cancels,
// purges and revives jobs. Package watch tells how the queue does: its condition, its workers, what
// runs and fails, its history, its events, its metrics. Package simulate computes what would become
// of jobs under other policies, and package doctor examines and mends the keys in Redis.
//
// # Promises
//
// Windows and spacings hold for starts, leaks and token buckets for slots, in the whole fleet and
// through crashes and wrong worker clocks: the only clock is that of Redis. An accepted job is
// started at least once, or dropped with a reason that [Inspector.Drops] lists. A handler may run
// twice for a job if its worker dies or loses Redis for longer than [WorkerConfig.Lease]: make
// handlers idempotent.
//
// The examples of [Client.Enqueue], [NewTask] and [Inspector] run as tests. How it works is
// in docs/design.md; which job starts when is decided in queue/internal/schedule.
package queue
