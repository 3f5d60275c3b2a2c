package envelope

import "time"

// Micros returns an instant as Redis keeps it, in microseconds since 1970: 0 for the zero time.
func Micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(0, t.UnixMicro())
}

// Instant returns what [Micros] was given.
func Instant(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us)
}
