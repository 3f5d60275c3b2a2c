package notify

import "time"

// A guard keeps tokens from mass loss. When sandbox and production, or two projects, are
// mixed up, or a relay has lost its way, every device is said to be bad, and whoever
// believes that deletes them all. So a doubtful answer is believed when a message to
// another device has got through since. Until then its message is not given up either.
type guard struct {
	row    int            // doubtful answers since a message got through
	worked int            // messages that did
	said   map[string]int // how many had, when a device was first said to be bad
	next   chan struct{}  // closed when the next message gets through
}

const (
	// longestRow is a row of dead tokens that a table hardly has: with nine dead of ten,
	// one in 40,000. After a longer one nothing that was said in it is believed.
	longestRow = 100

	doubtPatience = 5 * time.Second // how long an attempt waits for another to get through
	doubtWait     = time.Minute     // then it is made again
	maxSaid       = 10_000
)

// doubts notes that a device is said to be bad. It returns whether to believe that, or
// else what ends when it is worth another look.
func (g *guard) doubts(device string) (believed bool, next <-chan struct{}) {
	g.row++
	if g.said == nil || len(g.said) >= maxSaid {
		g.said = make(map[string]int)
	}
	if _, before := g.said[device]; !before {
		g.said[device] = g.worked
	}
	if g.next == nil {
		g.next = make(chan struct{})
	}
	return g.believes(device), g.next
}

// believes tells whether a message got through after the device was said to be bad.
func (g *guard) believes(device string) bool {
	said, ok := g.said[device]
	if !ok || g.worked == said {
		return false
	}
	delete(g.said, device)
	return true
}

// works notes that a message got through.
func (g *guard) works() {
	if g.row > longestRow {
		g.said = nil
	}
	g.row = 0
	g.worked++
	if g.next != nil {
		close(g.next)
		g.next = nil
	}
}
