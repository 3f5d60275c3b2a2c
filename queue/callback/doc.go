// Package callback tells the programs that have offered jobs how these have ended: as jobs of their own, in a queue of their
// own, which a worker with the webhook sender delivers under limits of their own.
//
//	receipts, err := client.Enqueue(ctx, queue.Job{
//		ID: "order-17", Tenant: "school-7", User: "teacher-42", Type: "push",
//		Callback: queue.Callback{URL: "https://shop.example/hooks", Secret: "whsec_…"},
//	})
//
// When the job is done, dropped after it was accepted, or dead, a [Relay] offers a job for the queue push-callbacks:
//
//	relay, err := callback.NewRelay(callback.Config{Redis: rdb, Queues: []string{"push"}})
//	…
//	err = relay.Run(ctx)
//
// `waterclock serve` runs a relay for the queues that it serves. One is enough, and any number may run. The jobs are notify
// messages with one target, so this delivers them, signed as Standard Webhooks says:
//
//	worker --queue push-callbacks --sender webhook
//
// The end of a job and the entry by which the relay finds it are written by one script. The relay notes how far it is when the
// jobs of the callbacks were accepted, and their IDs are made of the entries. So each end is told once, or twice where the
// worker of the callbacks dies between a delivery and its acknowledgement: a receiver ignores a webhook-id that it has seen.
// Ends are lost if nobody relays them while 100,000 others of the same kind follow.
package callback
