// Package runner is one run of a worker in one queue: a [worker.Worker] that runs jobs, and an
// [elect.Elector] that lets it lead ([leader.Serve]) when it is its turn.
//
//	queue ──▶ runner ──▶ leader ──▶ schedule
//	             │          │
//	             │          ▼
//	             └──────▶ worker ──▶ elect ──▶ clock, retry ──▶ store
//
// A leader knows the worker in which it leads, and gives that jobs directly. The worker knows
// of its leader only that it can be kicked.
package runner
