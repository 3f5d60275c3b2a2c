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
// keys.go lists the keys, and who writes them. A script declares every key that it touches.
package store
