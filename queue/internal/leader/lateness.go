package leader

import "time"

// lateness notices a leader that is short of CPU: its timers ring late.
type lateness struct {
	since time.Time
	count int
}

// tiredAfter is how late a timer rings that counts, and how many of them within tiredWithin
// make a leader tired.
const (
	tiredAfter  = 100 * time.Millisecond
	tiredCount  = 2
	tiredWithin = 10 * time.Second
)

func (l *lateness) note(late time.Duration) {
	if late < tiredAfter {
		return
	}
	if time.Since(l.since) > tiredWithin {
		l.since, l.count = time.Now(), 0
	}
	l.count++
}

func (l *lateness) tired() bool { return l.count >= tiredCount && time.Since(l.since) <= tiredWithin }
