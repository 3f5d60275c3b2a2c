package notify

import "time"

// A guard keeps a wrong configuration from deleting all tokens. If sandbox and production, or two
// projects, are mixed up, or a relay is misconfigured, the provider calls every device bad. So
// such an answer is believed only when a message to another device has got through since. Until
// then the message to the device is attempted again.
type guard struct {
	row    int             // doubtful answers since a message got through
	worked int             // messages that did
	said   map[string]int  // how many had, when a device was first said to be bad
	last   time.Time       // when the last of them did
	next   chan struct{}   // closed when the next message gets through
	gone   map[string]bool // devices that were said to be gone since a message got through
	warned time.Time       // when somebody was told that the configuration is wrong for some devices
}

const (
	// longestRow is how many answers in a row may call devices bad. If nine of ten tokens are
	// dead, a longer row has a probability of one in 40,000. No answer of a longer row is
	// believed.
	longestRow = 100

	doubtPatience = 5 * time.Second // how long an attempt waits for another to get through
	doubtWait     = time.Minute     // then it is made again
	maxSaid       = 10_000
	warnEvery     = 10 * time.Minute
)

// doubts notes that the provider calls a device bad. It returns whether to believe that; if not,
// next is closed when the next message gets through, and believes should be asked again. It is nil
// if none got through lately: a next one is not to be expected soon.
func (g *guard) doubts(device string, now time.Time) (believed bool, next <-chan struct{}) {
	g.row++
	if g.said == nil || len(g.said) >= maxSaid {
		g.said = make(map[string]int)
	}
	if _, before := g.said[device]; !before {
		g.said[device] = g.worked
	}
	if now.Sub(g.last) > doubtPatience {
		return g.believes(device), nil
	}
	if g.next == nil {
		g.next = make(chan struct{})
	}
	return g.believes(device), g.next
}

// believes reports whether a message got through after the provider called the device bad.
func (g *guard) believes(device string) bool {
	said, ok := g.said[device]
	if !ok || g.worked == said {
		return false
	}
	delete(g.said, device)
	return true
}

// works notes that a message got through.
func (g *guard) works(now time.Time) {
	if g.row > longestRow {
		g.said = nil
	}
	g.row, g.gone = 0, nil
	g.worked++
	g.last = now
	if g.next != nil {
		close(g.next)
		g.next = nil
	}
}

// warns returns true if it is time to tell that the configuration is wrong for some devices.
func (g *guard) warns(now time.Time) bool {
	if !g.warned.IsZero() && now.Sub(g.warned) < warnEvery {
		return false
	}
	g.warned = now
	return true
}

// goes notes that the provider says without doubt that a device is gone. It returns whether to
// believe that: a provider that says so of device after device, with no message between that gets
// through, has an incident or is asked through the wrong account.
func (g *guard) goes(device string) bool {
	if len(g.gone) > longestRow {
		return false
	}
	if g.gone == nil {
		g.gone = make(map[string]bool)
	}
	g.gone[device] = true
	return len(g.gone) <= longestRow
}
