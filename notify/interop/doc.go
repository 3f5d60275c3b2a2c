// Package interop drives the providers of notifytest with the clients of others, so that
// our senders and our providers cannot share a mistake: Google's own for FCM and its access
// tokens, sideshow/apns2, SherClockHolmes/webpush-go, the reference library of Standard
// Webhooks. What our senders say is read by Google's types and the reference verifier, and
// the scripts of docs/notify.md for a browser run in dop251/goja.
//
// The reference library of Standard Webhooks knows no ed25519: there the stand-in's own
// check, with the standard library, has to do.
//
// It is a module of its own: its dependencies are nobody else's.
//
//	cd notify/interop && GOWORK=off go test -count=1 ./...
package interop
