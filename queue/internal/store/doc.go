// Package store is a queue's keys in Redis, with one typed method for each script and each
// read. No other package knows keys, arguments and replies, except the doctor
// (queue/internal/examine), which judges what this package has written.
//
// Redis stores the queue and checks who may write. When a job starts is decided by the leader alone. Anybody
// enqueues ([Store.Offer]). Workers keep their leases ([Store.Beat]) and end their claims
// ([Store.Ack], [Store.Fail]). Whatever takes jobs out of lanes to start them, makes claims, or
// changes what rules remember is a [Commit] of the leader. Redis does a commit only while the leader's token
// is in force, the leader knows the newest change, and all is as the leader saw it.
//
// What an Inspector decides is a change (change.go), which needs no leader. After a change of policies or
// pauses, or a repair, Redis refuses commits until the leader has read the settings. After other changes (jobs
// are cancelled, purged, revived) it does not: the checks of a commit find what has become of its own jobs.
//
// keys.go lists the keys, and who writes them. A script declares every key that it touches. What a script does
// stands in lua, one file each.
//
// # Errors
//
// A method that writes returns one of these:
//
//   - [ErrSchema]: a program of another schema has written the keys. Nothing was changed.
//   - [BrokenKeyError]: a key of the queue itself has another type. Nothing was changed, and the same call
//     fails again until the key is repaired.
//   - an error of the method's own, such as [ErrDeposed] or [ErrStale]. Nothing was changed.
//   - any other error: the outcome is unknown, since the reply may be lost after Redis has done what was asked.
//     once.go says which scripts may then be sent again, and how the outcome of the others is found out.
//
// # Files
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
//	partitions.go                    the partitions of a queue that is divided
//	lanes.go, bounds.go, tenants.go  what waits, and since when it may be due
//	later.go                         jobs that wait for their time
//	records.go                       jobs that never run
//	told.go                          ends that somebody is told of
//	inspect.go, tail.go, chart.go    what people look at
//	read.go, scripts.go, once.go,    how commands and scripts are sent, and their replies and errors read
//	dedicated.go, words.go, errors.go,
//	types.go
package store
