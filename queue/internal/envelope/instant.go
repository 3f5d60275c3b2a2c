package envelope

import "time"

// Redis keeps instants as whole microseconds since 1970, which its numbers hold exactly. The zero time, which means
// that there is no instant, is 0.

// Micros returns an instant as Redis keeps it. Instants before 1970 are 0, too.
func Micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(0, t.UnixMicro())
}

// Instant returns the time of an instant that Redis keeps: what [Micros] was given, to the microsecond.
func Instant(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us)
}
