package worker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/members"
)

// An end waits for others the shorter, the more of the worker's places are taken: jobs may wait for them. It waits for
// nothing where there are few, and longer for a commit of the worker's own.
func TestHowLongEndsAreGathered(t *testing.T) {
	for _, c := range []struct {
		places, held int
		want         time.Duration
	}{
		{100, 0, AckDelay},
		{100, 49, AckDelay},
		{100, 50, AckHurry},
		{100, 100, AckHurry},
		{16, 7, AckDelay},
		{16, 8, AckHurry},
		{15, 7, AckDelay},
		{15, 8, 0},
		{1, 1, 0},
	} {
		w := &Worker{Places: NewPlaces(c.places).Share()}
		w.Claims = newClaims(w)
		for n := range c.held {
			w.Claims.hold(envelope.Claim{Stamp: "s", Spent: int64(n + 1)}, false)
		}
		if got := w.Claims.ackDelay(); got != c.want {
			t.Errorf("%d of %d places taken: %v, want %v", c.held, c.places, got, c.want)
		}
		want := c.want
		if want == AckDelay {
			want = AckPatience
		}
		var leader Leader
		w.leading.Store(&leader)
		if got := w.Claims.ackDelay(); got != want {
			t.Errorf("%d of %d places of a worker that leads taken: %v, want %v", c.held, c.places, got, want)
		}
	}
}

// An end for which others wait is told at once, though the leader's others wait for a commit; so are many, and those of a worker whose places
// are filled meanwhile.
func TestAnEndCutsAWaitShort(t *testing.T) {
	claim := func(n int) envelope.Claim { return envelope.Claim{Stamp: "s", Spent: int64(n)} }
	for name, c := range map[string]struct {
		more func(c *Claims)
		want time.Duration
	}{
		"nothing more":  {func(*Claims) {}, AckPatience},
		"one more":      {func(c *Claims) { c.done(End{Claim: claim(2)}) }, AckPatience},
		"one awaited":   {func(c *Claims) { c.done(End{Claim: claim(2), Awaited: true}) }, 2 * time.Millisecond},
		"as many as go": {func(c *Claims) { c.doneTimes(AckBatch-1, claim) }, 2 * time.Millisecond},
		"filled places": {func(c *Claims) {
			for n := range 60 {
				c.hold(claim(100+n), false)
			}
			c.done(End{Claim: claim(100)})
		}, 2 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := &Worker{Places: NewPlaces(100).Share()}
			w.Claims = newClaims(w)
			var leader Leader
			w.leading.Store(&leader)
			w.Claims.done(End{Claim: claim(1)})
			begin := time.Now()
			go func() {
				time.Sleep(2 * time.Millisecond)
				c.more(w.Claims)
			}()
			w.Claims.gather(t.Context())
			if took := time.Since(begin); took != c.want {
				t.Errorf("%s: gathered for %v, want %v", name, took, c.want)
			}
		})
	}
}

// doneTimes ends so many claims.
func (c *Claims) doneTimes(n int, claim func(n int) envelope.Claim) {
	for k := range n {
		c.done(End{Claim: claim(2 + k)})
	}
}

// A worker beats early when its other queues have taken many of its places, so that the leader of this one knows; not if it leads itself.
func TestWhoLeadsDoesNotBeatForItsPlaces(t *testing.T) {
	for _, leads := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			places := NewPlaces(100)
			w, other := &Worker{Places: places.Share()}, places.Share()
			want := 50 * time.Millisecond
			if leads {
				var leader Leader = idleLeader{}
				w.leading.Store(&leader)
				want = time.Second
			}
			begin := time.Now()
			go func() {
				for range 50 {
					other.Take()
				}
			}()
			w.rest(t.Context(), time.Second, 100)
			if took := time.Since(begin); took != want {
				t.Errorf("leads %v: the next beat comes after %v, want %v", leads, took, want)
			}
		})
	}
}

// idleLeader leads and does nothing.
type idleLeader struct{ Leader }

func (idleLeader) Kick() {}

func (idleLeader) Need() members.Need { return members.Enough }
