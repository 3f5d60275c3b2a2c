package main

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Samples are times, gathered by handlers that run at once.
type samples struct {
	mu    sync.Mutex
	taken []time.Duration
}

func (s *samples) add(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken = append(s.taken, d)
}

// sorted returns what was gathered, in milliseconds.
func (s *samples) sorted() []float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	times := make([]float64, len(s.taken))
	for i, d := range s.taken {
		times[i] = ms(d)
	}
	slices.Sort(times)
	return times
}

// stamp is a payload that holds an instant, which [instant] reads.
func stamp(at time.Time) []byte {
	text := strconv.FormatInt(at.UnixNano(), 10)
	return []byte(text + strings.Repeat(" ", payloadSize-len(text)))
}

func instant(payload []byte) time.Time {
	ns, _ := strconv.ParseInt(strings.TrimSpace(string(payload)), 10, 64)
	return time.Unix(0, ns)
}
