package notify

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// A message that gets through ends a suspension, whatever it was for, and the evidence.
func TestSuccessEndsASuspension(t *testing.T) {
	for kind, n := range map[finding]int{fails: quorum, doubts: doubtQuorum} {
		now := time.Now()
		var b breaker
		for round := range 2 {
			for i := range n {
				if !b.until.IsZero() {
					t.Errorf("%v: suspended after %d of %d", kind, i, n)
				}
				b.note(event{finding: kind, witness: fmt.Sprint(i)}, now, false)
			}
			if got := b.until.Sub(now); got != firstWait {
				t.Errorf("%v, round %d: suspended for %v, want %v", kind, round, got, firstWait)
			}
			b.note(event{finding: works}, now, true)
			if !b.until.IsZero() {
				t.Errorf("%v: suspended still", kind)
			}
		}
	}
}

// What is older than evidenceLife proves nothing, neither for the one quorum nor for the other.
func TestEvidenceAges(t *testing.T) {
	begin := time.Now()
	for _, tt := range []struct {
		first int           // devices that fail at once
		then  time.Duration // until one more does
		want  bool
	}{
		{quorum - 1, slowSpan / 2, true}, {quorum - 1, evidenceLife, true}, {quorum - 1, evidenceLife + 1, false},
		{slowQuorum - 1, slowSpan - 1, false}, {slowQuorum - 1, slowSpan, true}, {slowQuorum - 1, evidenceLife + 1, false},
	} {
		var b breaker
		for i := range tt.first {
			b.note(event{finding: fails, witness: fmt.Sprint(i), begun: begin}, begin, false)
		}
		now := begin.Add(tt.then)
		if began := b.note(event{finding: fails, witness: "last", begun: now}, now, false); began != tt.want {
			t.Errorf("%d, and one after %v: suspended %v, want %v", tt.first, tt.then, began, tt.want)
		}
	}
}

// However many routes are suspended, another one is judged as ever, and an attempt looks at its
// own route alone. What is worth nothing any more is forgotten.
func TestManySuspendedRoutes(t *testing.T) {
	bs, now := newBreakers(), time.Now()
	fail := func(name string, devices int) {
		for i := range devices {
			p, h := bs.enter(route{name: name}, visit{}, now)
			if h != nil {
				t.Fatalf("%s is held after %d", name, i)
			}
			bs.leave(p, event{finding: fails, witness: fmt.Sprint(i)}, now)
		}
	}
	const dead = 2 * manyRoutes
	for i := range dead {
		fail(fmt.Sprint("dead ", i), quorum)
	}
	for i := range quorum {
		p, h := bs.enter(route{name: "failing"}, visit{}, now)
		if h != nil {
			t.Fatalf("held after %d", i)
		}
		if n := bs.leave(p, event{finding: fails, witness: fmt.Sprint(i)}, now); n.began != (i == quorum-1) {
			t.Errorf("after %d devices that failed: suspended %v", i+1, n.began)
		}
		p, _ = bs.enter(route{name: fmt.Sprint("another ", i)}, visit{}, now)
		bs.leave(p, event{finding: works}, now)
	}
	now = now.Add(longestWait + evidenceLife)
	for i := range 2 * dead {
		fail(fmt.Sprint("later ", i), 1)
	}
	if n := len(bs.routes); n > 3*dead {
		t.Errorf("%d routes are remembered", n)
	}
	if b := bs.routes["dead 0"]; b != nil {
		t.Error("a suspension of long ago is remembered")
	}
}

// Trouble with access tokens is none of FCM's answers: it ends no row of failures, and its probe
// opens no route.
func TestTokenTroubleProvesNothing(t *testing.T) {
	o := mintTrouble(&ProviderError{Provider: "google-oauth", Status: 503})
	if f := findingOf(o); f != nothing {
		t.Errorf("finding %v", f)
	}
	if f := findingOf(mintTrouble(&ProviderError{Provider: "google-oauth", Status: 401})); f != fails {
		t.Errorf("refused credentials: finding %v", f)
	}
	bs, now := newBreakers(), time.Now()
	r := route{name: "fcm"}
	for i := range quorum {
		p, _ := bs.enter(r, visit{}, now)
		bs.leave(p, event{finding: fails, witness: fmt.Sprint(i)}, now)
		if p, h := bs.enter(r, visit{}, now); h == nil {
			bs.leave(p, event{finding: findingOf(o)}, now)
		} else if i < quorum-1 {
			t.Fatalf("held after %d", i+1)
		}
	}
	if _, h := bs.enter(r, visit{}, now); h == nil {
		t.Fatal("not suspended")
	}
	now = now.Add(firstWait)
	probe, _ := bs.enter(r, visit{}, now)
	bs.leave(probe, event{finding: findingOf(o)}, now)
	next, h := bs.enter(r, visit{}, now)
	if h != nil || !next.probe {
		t.Errorf("after a probe without a token: %+v, held %+v; want another probe", next, h)
	}
}

// Attempts that hung while other messages got through are no evidence when they end in a row.
func TestHangingAttemptsAreNoEvidence(t *testing.T) {
	bs, begin := newBreakers(), time.Now()
	r := route{name: "fcm"}
	var hanging []*pass
	for range 2 * quorum {
		p, _ := bs.enter(r, visit{}, begin)
		hanging = append(hanging, p)
	}
	p, _ := bs.enter(r, visit{}, begin)
	bs.leave(p, event{finding: works}, begin.Add(time.Second))
	for i, p := range hanging {
		if n := bs.leave(p, event{finding: fails, witness: fmt.Sprint(i)}, begin.Add(15*time.Second)); n.began {
			t.Fatalf("suspended after %d", i+1)
		}
	}
	later := begin.Add(16 * time.Second)
	for i := range quorum {
		p, h := bs.enter(r, visit{}, later)
		if h != nil {
			t.Fatalf("held after %d", i)
		}
		if n := bs.leave(p, event{finding: fails, witness: fmt.Sprint(i)}, later); n.began != (i == quorum-1) {
			t.Errorf("after %d that began later: suspended %v", i+1, n.began)
		}
	}
}

// While a route probes, others wait for the result; those that were turned away come back
// spread out, all but the first.
func TestOneProbeAtATime(t *testing.T) {
	bs, now := newBreakers(), time.Now()
	r := route{name: "apns"}
	for i := range quorum {
		p, h := bs.enter(r, visit{}, now)
		if h != nil {
			t.Fatalf("held after %d failures: %+v", i, h)
		}
		bs.leave(p, event{finding: fails, witness: fmt.Sprint(i)}, now)
	}
	for i := range 3 {
		if _, h := bs.enter(r, visit{}, now.Add(time.Second)); h == nil || !h.until.Equal(now.Add(firstWait)) || (h.spread > 0) != (i > 0) {
			t.Errorf("%d: %+v", i, h)
		}
	}
	later := now.Add(firstWait)
	probe, h := bs.enter(r, visit{}, later)
	if h != nil || !probe.probe {
		t.Fatalf("no probe: %+v", h)
	}
	if _, h := bs.enter(r, visit{}, later); h == nil || !h.until.Equal(later.Add(probeWait)) {
		t.Errorf("a second probe beside the first: %+v", h)
	}
	if n := bs.leave(probe, event{finding: fails}, later); !n.until.Equal(later.Add(2 * firstWait)) {
		t.Errorf("after a probe that failed: %+v", n)
	}
}

// After a long row of doubtful answers one message that gets through proves nothing.
func TestALongRowIsNotBelieved(t *testing.T) {
	for row, want := range map[int]bool{longestRow: true, longestRow + 1: false} {
		var g guard
		now := time.Now()
		for i := range row {
			g.doubts(fmt.Sprint(i), now)
		}
		g.works(now)
		if got := g.believes("0"); got != want {
			t.Errorf("after %d: %v, want %v", row, got, want)
		}
	}
}

// A share is a bound, and a place is free again when its attempt ends.
func TestShares(t *testing.T) {
	bs, now := newBreakers(), time.Now()
	r := route{"webhook", []share{{"origin", 2}}}
	first, _ := bs.enter(r, visit{}, now)
	bs.enter(r, visit{}, now)
	if _, h := bs.enter(r, visit{}, now); h == nil || !h.busy {
		t.Errorf("a third of two places: %+v", h)
	}
	bs.leave(first, event{finding: works}, now)
	if _, h := bs.enter(r, visit{}, now); h == nil || !h.busy {
		t.Errorf("a place of an attempt that is not over: %+v", h)
	}
	bs.release(first)
	if _, h := bs.enter(r, visit{}, now); h != nil {
		t.Errorf("a free place: %+v", h)
	}
}

// A failure is one device's own if another gets through within a second. A route that
// fails for another too, or where nobody tells, is in trouble.
func TestAlone(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		next finding // of another device, half a second later
		want bool
		took time.Duration
	}{
		"another gets through": {works, true, time.Second / 2},
		"another is answered":  {answers, true, time.Second / 2},
		"another fails":        {fails, false, time.Second / 2},
		"nothing is known":     {nothing, false, alonePatience},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bs, r, begin := newBreakers(), route{name: "apns"}, time.Now()
				attempt := func(f finding, device string) {
					p, _ := bs.enter(r, visit{}, time.Now())
					bs.leave(p, event{finding: f, witness: device}, time.Now())
				}
				if !bs.alone(t.Context(), r) {
					t.Error("a failure before which nothing failed, and which proves nothing")
				}
				attempt(fails, "a")
				time.AfterFunc(time.Second/2, func() { attempt(test.next, "b") })
				if got := bs.alone(t.Context(), r); got != test.want || time.Since(begin) != test.took {
					t.Errorf("%v after %v, want %v after %v", got, time.Since(begin), test.want, test.took)
				}
				time.Sleep(time.Second)
			})
		})
	}
}
