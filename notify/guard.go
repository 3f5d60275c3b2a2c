package notify

import "sync"

// A guard is there against mass loss. When sandbox and production, or two projects, are
// mixed up, every device's token is answered with "bad token", and whoever believes that
// deletes them all. So doubtful answers are believed only while they are few among the
// latest attempts of their route.
type guard struct {
	mu     sync.Mutex
	routes map[string]*record
}

const (
	guardSpan  = 100 // attempts that count
	guardFloor = 50  // fewer attempts are taken for that many
	guardShare = 5   // one in five may be doubtful
)

// A record is the latest attempts of a route.
type record struct {
	doubtful [guardSpan]bool
	n        int // attempts ever
	count    int // doubtful ones in the span
}

func newGuard() *guard { return &guard{routes: make(map[string]*record)} }

// believes notes an attempt and returns whether its answer may be believed. One that
// is not believed is not noted: it comes again.
func (g *guard) believes(route string, doubtful bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.routes[route]
	if r == nil {
		r = &record{}
		g.routes[route] = r
	}
	attempts := max(guardFloor, min(r.n, guardSpan))
	if doubtful && (r.count+1)*guardShare > attempts {
		return false
	}
	slot := &r.doubtful[r.n%guardSpan]
	if *slot {
		r.count--
	}
	if *slot = doubtful; doubtful {
		r.count++
	}
	r.n++
	return true
}
