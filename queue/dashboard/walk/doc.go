// Package walk goes through the dashboard as an operator does, in a real browser. It is a module
// of its own, so that nobody who uses the queue gets a browser's protocol with it.
package walk
