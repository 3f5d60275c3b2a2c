package notify

import (
	"context"
	"sync"
	"time"
)

// A breaker suspends a route, which is one account at a provider or one origin, when
// nothing gets through it any more. What one device is answered proves nothing: evidence
// is a row of different devices that failed, and none got its message since the first of
// these attempts began.
//
//	open ── quorum of failures ──▶ suspended ── the time is over ──▶ probing
//	  ▲                                ▲                                │
//	  │                                └────── it fails: twice as long ─┤
//	  └──────────────────────────────────────────── it gets through ────┘
//
// While it probes, one message at a time is sent. The message that met the failure is
// retried later, so the next probe is another one.
type breaker struct {
	until    time.Time     // suspended until then, and probing after; the zero time: open
	wait     time.Duration // the last suspension that we chose ourselves
	doubtful bool          // suspended for doubts, and not for failures
	local    bool          // the last failure was that the provider cannot be reached from here
	probing  bool          // a probe is under way
	lasts    time.Duration // this suspension
	turned   int           // attempts that were turned away in it
	asked    time.Time     // when somebody last looked

	failures, doubts evidence
	guard            guard
	change           chan struct{} // closed when the next attempt ends; nil: nobody waits for that
}

const (
	quorum        = 15               // so many devices in a row that fail suspend a route,
	slowQuorum    = 3                // or so many if nothing got through
	slowSpan      = time.Minute      // for so long
	doubtQuorum   = 200              // devices in a row that are said to be bad
	evidenceLife  = 10 * time.Minute // what is older proves nothing
	firstWait     = 10 * time.Second // the first suspension, where a provider does not say
	longestWait   = 15 * time.Minute
	probeWait     = 500 * time.Millisecond // until another look whether the probe got through
	alonePatience = time.Second            // how long a failure waits for the next one, or for a success
	manyRoutes    = 10_000                 // then those that are not needed any more are forgotten; origins come from users
)

// An evidence is a row of different witnesses.
type evidence struct {
	first, last time.Time
	witnesses   map[string]bool
}

// add adds a witness and returns how many there are, and over what time.
func (e *evidence) add(witness string, now time.Time) (n int, span time.Duration) {
	if e.witnesses == nil || now.Sub(e.last) > evidenceLife {
		*e = evidence{first: now, witnesses: make(map[string]bool)}
	}
	e.last = now
	e.witnesses[witness] = true
	return len(e.witnesses), now.Sub(e.first)
}

// A finding is what an attempt says about its route.
type finding int

const (
	nothing finding = iota
	works           // a device got its message
	answers         // the provider answered about this device or this message
	doubts          // it blamed the device, as it would if our configuration was wrong
	fails           // it took no message, or was not reached
)

// An attempt through a route has ended.
type event struct {
	finding finding
	witness string        // the device; "" for a repeated attempt, which proves nothing new
	after   time.Duration // what the provider asked for
	local   bool          // it was not reached, and no device has a part in that
	device  string        // of a doubt: who is said to be bad
	gone    bool          // of an answer: the device is
	ours    bool          // of a doubt: the configuration is wrong for some devices
	begun   time.Time     // the attempt
}

// note takes an event into account. It returns true if it has suspended the route.
func (b *breaker) note(e event, now time.Time, probe bool) (began bool) {
	switch e.finding {
	case works:
		*b = breaker{guard: b.guard, change: b.change, asked: b.asked}
		return false
	case answers:
		b.recover()
		return false
	case doubts:
		b.recover()
		return b.doubt(e, now, probe)
	case fails:
		return b.fail(e, now, probe)
	}
	return false
}

// recover ends what the provider's answer disproves. Doubts about the configuration only
// end when a message gets through.
func (b *breaker) recover() {
	b.failures = evidence{}
	if !b.doubtful {
		b.until, b.wait = time.Time{}, 0
	}
}

func (b *breaker) fail(e event, now time.Time, probe bool) (began bool) {
	b.local = e.local
	enough := probe
	// A message that got through since it began says more of the route: this one may have hung.
	if e.witness != "" && !e.begun.Before(b.guard.last) {
		n, span := b.failures.add(e.witness, now)
		enough = enough || n >= quorum || n >= slowQuorum && span >= slowSpan
	}
	return b.suspend(enough, probe, now, e.after)
}

func (b *breaker) doubt(e event, now time.Time, probe bool) (began bool) {
	enough := probe && b.doubtful
	if e.witness != "" {
		n, _ := b.doubts.add(e.witness, now)
		enough = enough || n >= doubtQuorum
	}
	if began = b.suspend(enough, probe, now, e.after); began {
		b.doubtful = true
	}
	return began
}

// suspend suspends the route if there is enough evidence. Answers to requests that were
// under way when it was suspended only make it as long as the provider asks.
func (b *breaker) suspend(enough, probe bool, now time.Time, after time.Duration) (began bool) {
	if !b.until.IsZero() && !probe {
		if at := now.Add(after); after > 0 && at.After(b.until) {
			b.until = at
		}
		return false
	}
	if !enough {
		return false
	}
	if after == 0 {
		b.wait = max(firstWait, min(2*b.wait, longestWait))
		after = b.wait
	}
	b.until, b.lasts, b.turned = now.Add(after), after, 0
	return true
}

// breakers are those of all routes, and how many messages are under way in each share.
type breakers struct {
	mu       sync.Mutex
	routes   map[string]*breaker
	wayOut   breaker // of this worker, see wayout.go
	sweepAt  int     // so many routes
	inFlight map[string]int
}

func newBreakers() *breakers {
	return &breakers{routes: make(map[string]*breaker), sweepAt: manyRoutes, inFlight: make(map[string]int)}
}

// A route is the way to a provider: whose failures count together.
type route struct {
	name   string
	shares []share
}

// A share bounds how many messages may be under way to a host, so that one that does not
// answer leaves places of the worker for others.
type share struct {
	of   string
	most int
}

// A visit is an attempt at a message: how many of its requests are under way in each share.
// All of them take one place of the worker, and so one of a share.
type visit map[string]int

// A pass is the permission for one attempt. Its end is told with leave, if there was one, and it is given
// back with release.
type pass struct {
	route route
	visit visit
	begun time.Time
	probe bool
	left  bool
}

// A hold is why there is none, and until when.
type hold struct {
	until     time.Time
	suspended bool   // the route is
	local     bool   // since the provider cannot be reached from here
	busy      bool   // its share of places is taken
	key       string // the key of the job that it is about; "" if it is about this worker alone

	// Others wait for the same instant, and one of them is enough to probe: the rest
	// comes back within so long after it.
	spread time.Duration
}

const shareWait = time.Second // until a place may be free again

// enter asks for an attempt.
func (bs *breakers) enter(r route, v visit, now time.Time) (p *pass, h *hold) {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	b := bs.of(r.name, now)
	switch {
	case b.until.After(now):
		h = b.held(b.until)
		if b.turned++; b.turned > 1 {
			h.spread = b.lasts
		}
		return nil, h
	case !b.until.IsZero() && b.probing:
		return nil, b.held(now.Add(probeWait))
	}
	for _, s := range r.shares {
		if v[s.of] == 0 && bs.inFlight[s.of] >= s.most {
			return nil, &hold{until: now.Add(shareWait), busy: true, key: byRoute}
		}
	}
	for _, s := range r.shares {
		if v[s.of]++; v[s.of] == 1 {
			bs.inFlight[s.of]++
		}
	}
	p = &pass{route: r, visit: v, begun: now, probe: !b.until.IsZero()}
	b.probing = p.probe
	return p, nil
}

// held is what an attempt is told while the route is suspended.
func (b *breaker) held(until time.Time) *hold {
	h := &hold{until: until, suspended: true, local: b.local, key: byRoute}
	if b.local {
		h.key = ""
	}
	return h
}

// of returns a route's breaker.
func (bs *breakers) of(name string, now time.Time) *breaker {
	b := bs.routes[name]
	if b == nil {
		if len(bs.routes) >= bs.sweepAt {
			bs.sweep(now)
		}
		b = &breaker{}
		bs.routes[name] = b
	}
	b.asked = now
	return b
}

// sweep forgets the routes that nobody has asked for since their evidence and suspension have
// become worthless. The next sweep comes when there are twice as many, so that a route costs the
// same however many are suspended.
func (bs *breakers) sweep(now time.Time) {
	for name, b := range bs.routes {
		if now.Sub(b.asked) > evidenceLife && now.Sub(b.until) > evidenceLife {
			delete(bs.routes, name)
		}
	}
	bs.sweepAt = max(manyRoutes, 2*len(bs.routes))
}

// News are what became of a route by an event.
type news struct {
	began    bool            // it was suspended just now
	warns    bool            // somebody is to be told that the configuration is wrong for some devices
	until    time.Time       // it is suspended until then; the zero time: it is not
	finding  finding         // doubts, if too many devices in a row are gone
	believed bool            // of a doubt: it is to be believed
	next     <-chan struct{} // else: ends when it is worth another look; nil: not soon
}

// leave says what an attempt has shown.
func (bs *breakers) leave(p *pass, e event, now time.Time) (n news) {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	b := bs.of(p.route.name, now)
	e.begun = p.begun
	if p.left = true; p.probe {
		b.probing = false
	}
	if e.gone && !b.guard.goes(e.device) {
		e.finding = doubts
	}
	switch n.finding = e.finding; e.finding {
	case works:
		b.guard.works(now)
	case doubts:
		n.believed, n.next = b.guard.doubts(e.device, now)
		n.warns = e.ours && b.guard.warns(now)
	}
	n.began = b.note(e, now, p.probe)
	if b.change != nil {
		close(b.change)
		b.change = nil
	}
	if b.until.After(now) {
		n.until = b.until
	}
	return n
}

// release gives a pass back.
func (bs *breakers) release(p *pass) {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	for _, s := range p.route.shares {
		if p.visit[s.of]--; p.visit[s.of] > 0 {
			continue
		}
		if bs.inFlight[s.of]--; bs.inFlight[s.of] == 0 {
			delete(bs.inFlight, s.of)
		}
	}
	if p.probe && !p.left {
		if b := bs.routes[p.route.name]; b != nil {
			b.probing = false
		}
	}
}

// believes looks again whether a device is to be believed bad.
func (bs *breakers) believes(r route, device string) bool {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	b := bs.routes[r.name]
	return b != nil && b.guard.believes(device)
}

// alone waits a little to learn whether a failure was one device's own. It returns true if
// something got through the route since, and false if it is in trouble or nobody knows.
func (bs *breakers) alone(ctx context.Context, r route) bool {
	patience := time.NewTimer(alonePatience)
	defer patience.Stop()
	for {
		failed, change := bs.failing(r)
		if failed != 1 {
			return failed == 0
		}
		select {
		case <-change:
		case <-patience.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// failing returns how many different devices have failed in a row, and what ends when
// another attempt has ended.
func (bs *breakers) failing(r route) (devices int, change <-chan struct{}) {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	b := bs.routes[r.name]
	if b == nil {
		return 0, nil
	}
	if b.change == nil {
		b.change = make(chan struct{})
	}
	return len(b.failures.witnesses), b.change
}
