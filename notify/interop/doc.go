// Package interop drives the providers of notifytest with the clients of others, so that
// our senders and our providers cannot share a mistake. It is a module of its own: its
// dependencies are nobody else's.
package interop
