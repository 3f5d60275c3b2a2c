// Package ctxkey has the keys of what the context of a handler carries.
package ctxkey

// Info is the key of the *queue.Info of the job that the handler runs.
type Info struct{}

// Inboxes is the key of the names of the queues whose inboxes the worker opens.
type Inboxes struct{}
