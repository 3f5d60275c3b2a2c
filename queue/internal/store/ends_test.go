package store

import (
	"testing"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// Done counts the claims that were still held when they were ended, by a commit as by an ack: one that was taken back
// meanwhile is another worker's, and its job is done when that says so.
func TestEndsOfLostClaimsAreNotCounted(t *testing.T) {
	t.Parallel()
	ends := map[string]func(t *testing.T, d *desk, claims []Claim) error{
		"ack": func(t *testing.T, d *desk, claims []Claim) error {
			_, err := d.Ack(t.Context(), Ack{Worker: "a", Claims: claims})
			return err
		},
		"commit": func(t *testing.T, d *desk, claims []Claim) error {
			f, c := d.lead("a"), d.NewCommit()
			c.Ack("a", claims)
			_, err := d.Commit(t.Context(), f, c)
			return err
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			onDesks(t, func(t *testing.T, d *desk) {
				d.hold("a", claimOf("held"))
				d.hold("a", claimOf("other"))
				for range 2 { // the second time none of them is held
					d.must(end(t, d, []Claim{claimOf("held"), claimOf("lost")}))
					if n := d.client.HGet(t.Context(), d.key.Meta(), "done").Val(); n != "1" {
						t.Errorf("%s are done, want 1", n)
					}
				}
				if n := d.client.HLen(t.Context(), d.key.Running("a")).Val(); n != 1 {
					t.Errorf("%d claims are left, want the other one", n)
				}
			})
		})
	}
}

// Of a job with a callback it is recorded that it is done: once, and not by a worker that has lost the claim. Whoever tells
// sees it until that is noted, and then no more.
func TestEndsAreToldOnce(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		ends := func(want int) ToldUntil {
			t.Helper()
			found, until, _, err := d.Ends(t.Context(), 10)
			if d.must(err); len(found) != want {
				t.Fatalf("%d ends, want %d: %+v", len(found), want, found)
			}
			return until
		}
		env := envelope.Envelope{Stamp: envelope.Stamp(1), Cost: 1, MaxAttempts: 1, Type: "t", Callback: "https://shop.example"}
		ack := func(claim string) {
			_, err := d.Ack(t.Context(), Ack{Worker: "a", Claims: []Claim{claimOf(claim)}, Done: env.String()})
			d.must(err)
		}
		d.hold("a", claimOf("held"))
		ack("held")
		ends(0) // nobody has offered a job with a callback
		d.must(d.CallsBack(t.Context()))
		ack("held")
		ack("lost")
		ends(1)
		d.must(d.Told(t.Context(), ends(1)))
		d.must(d.CallsBack(t.Context())) // another offer begins nothing anew
		ends(0)
		d.hold("a", claimOf("other"))
		ack("other")
		ends(1)
	})
}
