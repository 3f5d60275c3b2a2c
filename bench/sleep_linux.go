package main

import (
	"syscall"
	"time"
)

// preciseSleep is a time.Sleep that is exact to some 60 µs. Go's timers are exact to a
// millisecond in a process that has nothing else to do, which is the whole round trip.
func preciseSleep(d time.Duration) {
	if d > 0 {
		pause := syscall.NsecToTimespec(int64(d))
		_ = syscall.Nanosleep(&pause, nil)
	}
}
