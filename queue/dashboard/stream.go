package dashboard

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Streams are the open pages that are told when there is more to see. Each holds one letter at
// most: a page that is slow to read misses some, and costs nobody anything.
type streams struct {
	mu    sync.Mutex
	pages map[*listener]bool
	ends  chan struct{} // closed when Run ends; nil while it does not run
}

// A listener is one open page.
type listener struct {
	queue string
	news  chan struct{}
}

const (
	maxStreams   = 1000            // open pages, of all queues together
	writeWithin  = 5 * time.Second // a page that does not read for so long is dropped
	streamLength = 10 * time.Minute
)

func newStreams() *streams { return &streams{pages: make(map[*listener]bool)} }

// open lets pages listen, or ends all streams.
func (s *streams) open(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ends != nil {
		close(s.ends)
		s.ends = nil
	}
	if yes {
		s.ends = make(chan struct{})
	}
}

// listen adds a page; nil if there is no room, and no channel if nobody would tell it anything.
func (s *streams) listen(queue string) (*listener, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ends == nil {
		return &listener{}, nil
	}
	if len(s.pages) >= maxStreams {
		return nil, s.ends
	}
	l := &listener{queue, make(chan struct{}, 1)}
	s.pages[l] = true
	return l, s.ends
}

func (s *streams) leave(l *listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pages, l)
}

// tell puts a letter to all pages of a queue, but those that have one.
func (s *streams) tell(queue string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.pages {
		if l.queue != queue {
			continue
		}
		select {
		case l.news <- struct{}{}:
		default:
		}
	}
}

// events tells a page when to fetch itself again.
func (d *Dashboard) events(w http.ResponseWriter, r *http.Request) {
	of := d.queues[r.PathValue("queue")]
	if of == nil {
		http.NotFound(w, r)
		return
	}
	l, ends := d.streams.listen(of.name)
	switch {
	case l == nil:
		w.Header().Set("Retry-After", "60")
		http.Error(w, "too many open pages", http.StatusServiceUnavailable)
		return
	case ends == nil:
		w.WriteHeader(http.StatusNoContent) // a browser does not ask again
		return
	}
	defer d.streams.leave(l)
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // where there is none, there is no deadline to lift
	length := time.NewTimer(streamLength)
	defer length.Stop()
	for {
		_ = control.SetWriteDeadline(time.Now().Add(writeWithin))
		if _, err := fmt.Fprint(w, "event: news\ndata:\n\n"); err != nil {
			return
		}
		if control.Flush() != nil {
			return
		}
		select {
		case <-l.news:
		case <-length.C:
			return
		case <-ends:
			return
		case <-r.Context().Done():
			return
		}
	}
}
