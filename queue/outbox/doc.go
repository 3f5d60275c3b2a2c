// Package outbox inserts jobs in a transaction of your database. A job whose transaction commits reaches the queue, and a
// job whose transaction is rolled back does not.
//
// An order that is saved, and its confirmation that is enqueued, are in two systems: a program that dies between the two calls
// loses one of them. With an outbox both are rows of one transaction. A [Table] is where the jobs are: its Insert writes them
// with a *sql.Tx, on Postgres, MySQL or MariaDB, and SQLite.
//
//	jobs := outbox.Table{Dialect: outbox.Postgres}
//
//	tx, err := db.BeginTx(ctx, nil)
//	if err != nil {
//		return err
//	}
//	defer tx.Rollback()
//	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, total) VALUES ($1, $2)", order.ID, order.Total); err != nil {
//		return err
//	}
//	job := queue.Job{Tenant: "shop-7", User: order.Customer, Type: "confirmation", Payload: text}
//	if _, err := jobs.Insert(ctx, tx, "mail", job); err != nil {
//		return err
//	}
//	return tx.Commit()
//
// A [Relay] reads committed rows and offers them to the queue. It runs in any program that reaches both, and several may run:
//
//	relay, err := outbox.NewRelay(db, jobs, rdb, outbox.RelayConfig{Queues: []string{"mail"}})
//	if err != nil {
//		return err
//	}
//	return relay.Run(ctx)
//
// # The way of a row
//
// Every row has an ID, the job's own or one that Insert makes, and the queue takes one job of an ID. So a relay may die at any
// time: the next one offers the row again, and the queue answers that it has the job.
//
//	waiting   committed, and not answered yet
//	accepted  the queue has the job: the row is deleted, or kept for [RelayConfig].KeepAccepted
//	dropped   the queue dropped the job when it was offered
//	invalid   the row is no job, or the queue's policies refuse it
//	unknown   it was offered a day ago, and the answer was lost: see below
//
// Rows that end otherwise than accepted stay in the table with the reason, and hold back no others. A row that is set to waiting
// again is offered again.
//
// A relay works in rounds. Each is two short transactions, and none is open while the relay talks to Redis:
//
//  1. It reads the first waiting rows, and remembers no position: numbers of rows become visible in the order of the commits,
//     not in their own.
//  2. One transaction renews the relay's lease of the queue and notes at the rows when they are offered for the first time.
//  3. The rows are offered.
//  4. The other transaction ends the rows that were answered.
//
// The lease keeps the order of rows, and keeps relays from doing work twice. It does not make acceptance unique; the IDs do. A
// relay that was frozen, and wakes when another one has its lease, offers rows that the queue has already.
//
// The queue knows an ID for a day after it took the job. So a row that was first offered longer than 23 hours ago, and whose
// answer no relay has noted, is not offered again: it becomes unknown, for a person to decide. That happens to rows of a relay
// that died, or lost Redis, between steps 2 and 4, if for a day no other relay came.
package outbox
