package runner

// Places are the jobs that a worker may run at once, shared by its queues.
type Places struct{ free chan struct{} }

// NewPlaces returns n free places.
func NewPlaces(n int) *Places {
	p := &Places{free: make(chan struct{}, n)}
	for range n {
		p.free <- struct{}{}
	}
	return p
}

// take takes a place, if one is free.
func (p *Places) take() bool {
	select {
	case <-p.free:
		return true
	default:
		return false
	}
}

func (p *Places) give() { p.free <- struct{}{} }

func (p *Places) count() int { return len(p.free) }
func (p *Places) all() int   { return cap(p.free) }
