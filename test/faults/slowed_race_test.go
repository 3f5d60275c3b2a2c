//go:build race

package faults

// slowed says that the race detector slows this program and the workers that it starts: too much
// to ask how soon they start what is due.
const slowed = true
