package leader

import (
	"testing"

	"github.com/waterclock/waterclock/queue/internal/store"
)

// A leader gives back the place of a job that was the last one here, though nothing here is about the limit any more. A telling that nobody
// has answered leaves no fewer places than there may be in Redis.
func TestPlacesOfNobodyAreGivenBack(t *testing.T) {
	term := &term{w: idle()}
	term.fleet = fleet{w: term.w, members: []*member{{}}}
	term.leases = leases{told: true, of: map[string]lease{"c:x": {most: 3, has: 2}, "c:y": {most: 3}}}
	asks := term.leaseAsks(term.withUnused(nil), 1)
	if len(asks) != 1 || asks[0] != (store.LeaseAsk{Scope: "c:x", Most: 3}) {
		t.Fatalf("%+v; want to keep none of c:x", asks)
	}
	term.untold(store.LeaseTelling{Asks: asks}, store.ErrUntold, 1)
	if again := term.leaseAsks(term.withUnused(nil), 2); len(again) != 1 || again[0] != asks[0] {
		t.Errorf("%+v; want to tell so again", again)
	}
}
