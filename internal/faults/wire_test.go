package faults

import (
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/throttle"
)

// torn lets connections break in every way: between messages and in the midst of one, in one
// direction first, for one worker or for all. What was sent may arrive much later.
func torn(t *testing.T, name string) *scene {
	server, at := plain(t)
	at.queue = []throttle.Rule{throttle.Window(150, time.Second)}
	var proxies []*redistest.Proxy
	for range 3 {
		proxy := redistest.StartProxy(t, server.Addr)
		proxies = append(proxies, proxy)
		at.urls = append(at.urls, "redis://"+proxy.Addr+"/0")
	}
	s := newScene(t, name, at)
	s.during(func() {
		for range 15 * s.rounds {
			s.pause(s.between(50*time.Millisecond, 500*time.Millisecond))
			hit := proxies
			if one := s.rng.IntN(len(proxies) + 1); one < len(proxies) {
				hit = proxies[one : one+1]
			}
			begin := time.Now()
			s.tear(hit)
			s.harm = append(s.harm, harm{at: begin, healed: time.Now()})
		}
	})
	return s
}

// ways is in how many ways connections break.
const ways = 8

// tear breaks the connections of proxies in one of many ways.
func (s *scene) tear(proxies []*redistest.Proxy) {
	kind, lasts, bytes := s.rng.IntN(ways), s.between(20*time.Millisecond, lease/2), s.rng.IntN(5000)
	s.t.Logf("%s: %d proxies, way %d, %v, %d bytes", clock(time.Now()), len(proxies), kind, lasts, bytes)
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
