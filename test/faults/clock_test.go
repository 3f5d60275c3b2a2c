package faults

import (
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
)

// stepping sets Redis's wall clock in steps. Where it goes back it repeats itself, and nothing starts
// before it has caught up.
func stepping(t *testing.T, steps ...time.Duration) *scene {
	server, wall := redistest.StartWithClock(t)
	at := on(server.URL(), server.Client(t))
	at.stepped, at.lively = true, true
	s := newScene(t, at)
	s.during(func() {
		for range 2 * s.rounds {
			for _, step := range steps {
				h := harm{at: time.Now(), before: wall.Ahead()}
				wall.Step(step)
				s.pause(lease/2 + max(0, -step)) // until everybody has read the clock again
				h.after, h.healed = wall.Ahead(), time.Now()
				s.harm = append(s.harm, h)
				s.pause(s.between(time.Second, 2*time.Second))
			}
		}
	})
	return s
}

// behind sets Redis's wall clock back by an hour, and after a while forward again: meanwhile the
// queue waits until the clock has caught up.
func behind(t *testing.T) *scene {
	server, wall := redistest.StartWithClock(t)
	at := on(server.URL(), server.Client(t))
	at.stepped, at.lively = true, true
	s := newScene(t, at)
	s.during(func() {
		for range s.rounds {
			s.pause(s.between(200*time.Millisecond, time.Second))
			h := harm{at: time.Now()}
			wall.Step(-time.Hour)
			h.before = wall.Ahead()
			s.pause(2 * lease)
			wall.Step(time.Hour)
			s.pause(lease / 2) // until everybody has read the clock again
			h.healed = time.Now()
			s.harm = append(s.harm, h)
			s.pause(s.between(time.Second, 2*time.Second))
		}
	})
	return s
}
