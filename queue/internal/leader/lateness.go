package leader

import "time"

// A leader that gets no CPU delays every start of the queue, while other workers could lead. Its lease does not end
// that: a leader that is late by a tenth of a second renews it all the same. Nobody else can tell it from a leader
// with nothing to do, and its commits take long for other reasons, too. But the timer of a round that waits rings when
// it is due: how late it rings is how long this process has waited for CPU. A leader that is short of it hands over to a
// deputy; without one it leads on.

// lateness notices a leader that is short of CPU: its timers ring late.
type lateness struct {
	since time.Time // when the first of them rang late
	count int       // how many did within tiredWithin of that
}

// tiredAfter is how late a timer rings that counts, and how many of them within tiredWithin
// make a leader tired.
const (
	tiredAfter  = 100 * time.Millisecond
	tiredCount  = 2
	tiredWithin = 10 * time.Second
)

// note notes how late a timer has rung.
func (l *lateness) note(late time.Duration) {
	if late < tiredAfter {
		return
	}
	if time.Since(l.since) > tiredWithin {
		l.since, l.count = time.Now(), 0
	}
	l.count++
}

// tired reports whether that was often and lately: once may be a pause of the garbage collector, or a machine that was
// suspended.
func (l *lateness) tired() bool { return l.count >= tiredCount && time.Since(l.since) <= tiredWithin }
