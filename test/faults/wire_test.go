package faults

import (
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/throttle"
)

// torn lets connections break in every way: between messages and in the midst of one, in one
// direction first, for one worker or for all. What was sent may arrive much later.
func torn(t *testing.T) *scene {
	proxies, at := wires(t)
	s := newScene(t, at)
	s.during(func() {
		for range 15 * s.rounds {
			s.pause(s.between(50*time.Millisecond, 500*time.Millisecond))
			s.tear(proxies)
		}
	})
	return s
}

// wires is a stage with a way of its own to Redis for each worker, and a rule for everything
// together that binds.
func wires(t *testing.T) (proxies []*redistest.Proxy, at stage) {
	server, at := plain(t)
	at.queue = []throttle.Rule{throttle.Window(150, time.Second)}
	for range 3 {
		proxy := redistest.StartProxy(t, server.Addr)
		proxies = append(proxies, proxy)
		at.urls = append(at.urls, "redis://"+proxy.Addr+"/0")
	}
	return proxies, at
}

// everything lets workers be killed and frozen, and Redis forget its scripts, while connections
// break.
func everything(t *testing.T) *scene {
	proxies, at := wires(t)
	at.slack = lease      // an end is on its way as long as connections are broken
	at.longer = 2 * lease // nothing is reaped for a lease after nobody could reach Redis
	s := newScene(t, at)
	s.during(func() {
		for range 20 * s.rounds {
			s.pause(s.between(50*time.Millisecond, 500*time.Millisecond))
			switch victim := s.anyone(); s.rng.IntN(5) {
			case 0:
				s.harm = append(s.harm, harm{worker: victim.name, at: s.kill(victim)})
				s.hire()
			case 1:
				s.freeze(victim, s.between(20*time.Millisecond, lease/2))
			case 2:
				if err := s.client.ScriptFlush(t.Context()).Err(); err != nil {
					t.Error(err)
				}
			default:
				s.tear(proxies)
			}
		}
		s.crew.wait()
	})
	return s
}

// ways is in how many ways connections break.
const ways = 8

// tear breaks the connections by one of the proxies, or by all, in one of many ways.
func (s *scene) tear(proxies []*redistest.Proxy) {
	if one := s.rng.IntN(len(proxies) + 1); one < len(proxies) {
		proxies = proxies[one : one+1]
	}
	begin := time.Now()
	defer func() { s.harm = append(s.harm, harm{at: begin, healed: time.Now()}) }()
	kind, lasts, bytes := s.rng.IntN(ways), s.between(20*time.Millisecond, lease/2), s.rng.IntN(5000)
	for _, p := range proxies {
		switch kind {
		case 0:
			p.Cut()
		case 1:
			p.CutAfter(bytes, -1)
		case 2:
			p.CutAfter(-1, bytes)
		case 3:
			p.Silence(true, false)
		case 4:
			p.Silence(false, true)
		case 5:
			p.Down()
		case 6:
			p.Hold(true, false)
		case 7:
			p.Hold(false, true)
		}
	}
	if kind < 5 {
		return
	}
	s.pause(lasts)
	for _, p := range proxies {
		if s.rng.IntN(2) == 0 {
			p.Cut() // what was held is lost
		}
		p.Release()
		p.Up()
	}
}
