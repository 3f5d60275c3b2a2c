// Package store is a queue's keys in Redis, with one typed method for each script and each
// kind of look. Nobody else sees keys, arguments or replies.
//
// Redis stores and judges who may write; it decides nothing. Anybody enqueues
// ([Store.Offer]). Workers keep their leases ([Store.Beat]) and end their claims
// ([Store.Ack], [Store.Fail]). Whatever takes jobs out of lanes, gives claims or changes what
// rules remember is a [Commit] of the leader, and happens only while nobody else leads,
// nothing has changed that the leader does not know of, and all is as the leader saw it.
//
// What an Inspector decides (policies, pauses, cancelled, purged and revived jobs) is a
// change: it needs no leader, and commits are refused until the leader knows of it.
//
// keys.go lists the keys, and who writes them. A script declares every key that it touches. What a script does
// stands in lua, one file each.
//
//	offer.go                         jobs come in
//	commit.go, lists.go, fence.go    what the leader decides, and when Redis refuses it
//	looks.go                         what a commit reads beside that
//	lead.go, worker.go               who leads, and who works
//	claims.go, reap.go, fail.go      what workers hold; how claims end
//	mailbox.go                       messages for a worker
//	notices.go, notice.go            notices to the leader
//	change.go                        what others than the leader change, at one instant:
//	                                 policies, pauses, ids, purge, revive, mend, unique
//	lanes.go, bounds.go, tenants.go  what waits, and since when it may be due
//	later.go                         jobs that wait for their time
//	records.go                       jobs that never run
//	inspect.go, tail.go, chart.go    what people look at
//	read.go, scripts.go, once.go,    how commands and scripts are sent, and their replies and errors read
//	waits.go, words.go, errors.go,
//	types.go
package store
