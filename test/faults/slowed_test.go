//go:build !race

package faults

// slowed says that the race detector slows the workers.
const slowed = false
