package faults

import (
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/throttle"
)

// slowly is how many jobs a tenant may start a second where each takes many round trips.
const slowly = 12

// far lets every worker have a way to Redis of its own length, and each lead in turn.
func far(t *testing.T) *scene {
	server, at := plain(t)
	at.leak = slowly
	at.longer = 4 * time.Second // the lease of a leader is longer by 30 round trips, and the next one may die too
	for _, trip := range []time.Duration{60 * time.Millisecond, 6 * time.Millisecond, 30 * time.Millisecond} {
		proxy := redistest.StartProxy(t, server.Addr)
		proxy.Delay(trip / 2)
		at.urls = append(at.urls, "redis://"+proxy.Addr+"/0")
	}
	s := newScene(t, at)
	s.during(func() {
		for range 6 * s.rounds {
			s.pause(s.between(500*time.Millisecond, 1500*time.Millisecond))
			victim := s.anyone()
			s.harm = append(s.harm, harm{worker: victim.name, at: s.kill(victim)})
			s.hire()
		}
		s.crew.wait()
	})
	return s
}

// oneWay lets the way to Redis, or back, be longer than the other: half of a round trip says
// nothing.
func oneWay(t *testing.T, there bool) *scene {
	server, at := plain(t)
	at.leak = slowly
	var proxies []*redistest.Proxy
	for range 3 {
		proxy := redistest.StartProxy(t, server.Addr)
		proxies = append(proxies, proxy)
		at.urls = append(at.urls, "redis://"+proxy.Addr+"/0")
	}
	s := newScene(t, at)
	s.during(func() {
		for range 10 * s.rounds {
			begin := time.Now()
			for _, proxy := range proxies {
				delay := s.between(0, 60*time.Millisecond)
				if there {
					proxy.DelayEach(delay, 0)
				} else {
					proxy.DelayEach(0, delay)
				}
			}
			s.harm = append(s.harm, harm{at: begin, healed: time.Now()})
			s.pause(s.between(300*time.Millisecond, time.Second))
		}
	})
	return s
}

// starved lets whoever leads run for a few milliseconds at a time only.
func starved(t *testing.T) *scene {
	_, at := plain(t)
	s := newScene(t, at)
	s.during(func() {
		for range 4 * s.rounds {
			s.pause(s.between(200*time.Millisecond, time.Second))
			victim := s.leader()
			if victim == nil {
				continue
			}
			for range 8 {
				s.freeze(victim, s.between(20*time.Millisecond, 300*time.Millisecond))
				s.pause(s.between(2*time.Millisecond, 20*time.Millisecond))
			}
		}
	})
	return s
}

// dazed stops workers for a while that their leases survive: nothing of theirs is taken
// back, and what they come too late for is not started.
func dazed(t *testing.T) *scene {
	_, at := plain(t)
	s := newScene(t, at)
	s.during(func() {
		for range 10 * s.rounds {
			s.pause(s.between(100*time.Millisecond, 500*time.Millisecond))
			victim := s.anyone()
			s.freeze(victim, s.between(20*time.Millisecond, lease/2))
		}
	})
	return s
}

// calendar stops workers around the turns of seconds, by which users' starts are counted.
func calendar(t *testing.T) *scene {
	_, at := plain(t)
	at.users = []throttle.Rule{throttle.FixedWindow(5, time.Second)}
	s := newScene(t, at)
	s.during(func() {
		for range 8 * s.rounds {
			s.pause(time.Until(time.Now().Truncate(time.Second).Add(time.Second)) - s.between(0, 25*time.Millisecond))
			victim := s.anyone()
			s.freeze(victim, s.between(5*time.Millisecond, time.Second))
			s.pause(100 * time.Millisecond)
		}
	})
	return s
}

// heavy lets one job in ten carry as much as there may be.
func heavy(t *testing.T) *scene {
	_, at := plain(t)
	at.large = 1 << 20
	at.leak = 20
	s := newScene(t, at)
	s.during(func() {
		for range 6 * s.rounds {
			s.pause(s.between(200*time.Millisecond, time.Second))
			victim := s.anyone()
			s.harm = append(s.harm, harm{worker: victim.name, at: s.kill(victim)})
			s.hire()
		}
		s.crew.wait()
	})
	return s
}
