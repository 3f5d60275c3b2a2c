package worker

import (
	"testing"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
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
		if got := w.Claims.gathers(); got != c.want {
			t.Errorf("%d of %d places taken: %v, want %v", c.held, c.places, got, c.want)
		}
		want := c.want
		if want == AckDelay {
			want = AckPatience
		}
		var leader Leader
		w.leading.Store(&leader)
		if got := w.Claims.gathers(); got != want {
			t.Errorf("%d of %d places of a worker that leads taken: %v, want %v", c.held, c.places, got, want)
		}
	}
}
