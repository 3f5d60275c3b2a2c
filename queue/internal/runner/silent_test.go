package runner

import (
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/sample"
)

// The connections of a worker die without a word: what it sends vanishes, nobody is told, and
// new connections work. Its lease holds, nothing that it has ended runs again, and what
// it was told by them comes to it soon.
func TestConnectionsThatDieWithoutAWord(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		leads bool
		most  time.Duration // that a job waits
	}{
		"of the leader": {true, 2 * time.Second}, // another one leads, to whom it returns what it was given too late
		"of another":    {false, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 3)
				s.handler = func(_ string, a Attempt) Outcome {
					time.Sleep(50 * time.Millisecond)
					s.mu.Lock()
					defer s.mu.Unlock()
					s.done[a.Job.Payload]++
					return Outcome{}
				}
				time.Sleep(2 * time.Second)
				flowing := make(chan struct{})
				go func() { s.flow(8 * time.Second); close(flowing) }()
				for range 2 {
					time.Sleep(3 * time.Second)
					for _, w := range s.workers {
						if (w == s.leader()) == test.leads {
							w.wire.silence()
							break
						}
					}
				}
				<-flowing
				s.drain()
				s.judge()
				for _, a := range s.starts {
					ns, _ := strconv.ParseInt(a.payload[len(a.payload)-18:], 10, 64)
					if waited := a.at.Sub(time.Unix(0, ns)); waited > test.most {
						t.Errorf("a job of %s has waited for %v", a.user, waited)
					}
				}
			})
		})
	}
}

// Nothing arrives for some time, by new connections either. What is offered after that starts soon, though all
// connections that there were are dead, and nobody has been told.
func TestTheNetworkIsDark(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	for _, workers := range []int{1, 2} {
		for _, dark := range []time.Duration{4 * time.Second, 6 * time.Second, 12 * time.Second, 30 * time.Second} {
			t.Run(fmt.Sprintf("%d for %v", workers, dark), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newStage(t, 0)
					s.streams, s.lease = true, 15*time.Second
					s.handler = func(string, Attempt) Outcome { return Outcome{} }
					s.hire(workers)
					time.Sleep(5 * time.Second)
					var lighten []func()
					for _, w := range s.workers {
						lighten = append(lighten, w.wire.darken())
					}
					time.Sleep(dark)
					for _, l := range lighten {
						l()
					}
					s.startWithin(5 * time.Second)
				})
			})
		}
	}
}

// startWithin offers jobs for twenty seconds. Each starts within a time.
func (s *stage) startWithin(most time.Duration) {
	const jobs = 200
	for i := range jobs {
		s.offer(fmt.Sprint("u", i), 1)
		time.Sleep(100 * time.Millisecond)
	}
	time.Sleep(most)
	s.end()
	if len(s.starts) != jobs {
		s.t.Errorf("%d of %d jobs have started", len(s.starts), jobs)
	}
	for _, a := range s.starts {
		ns, _ := strconv.ParseInt(a.payload[len(a.payload)-18:], 10, 64)
		if waited := a.at.Sub(time.Unix(0, ns)); waited > most {
			s.t.Errorf("a job of %s has waited for %v", a.user, waited)
		}
	}
}
