package store

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// bounded offers n jobs of u to a lane with a label that counts them for its user, of whom two may wait.
func (d *desk) bounded(batch string, n int) (OfferReply, error) {
	lane := Lane{Tenant: "t", User: "u", Priority: envelope.Normal, Label: envelope.CountedUser + "&x"}
	o := Offer{
		Batch: batch, Keep: time.Minute, Tenants: []OfferTenant{{Name: "t"}},
		Subjects: []OfferSubject{{Scope: "u:t:u", Capacity: 2, Rule: "no room", Plain: envelope.PlainLanes("t", "u")}},
	}
	for range n {
		o.Jobs = append(o.Jobs, OfferJob{Lane: lane, Body: []byte("job"), Subjects: []int{0}})
	}
	return d.Offer(d.t.Context(), o)
}

// An offer that is sent again counts once, and where the backlogs hold something else nothing is done.
func TestBacklogsAtTheDoor(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		for range 2 {
			reply, err := d.bounded("a", 3)
			d.must(err)
			if got := said(reply.Receipts); !slices.Equal(got, []string{"a 1 0", "a 2 1", "x 0 2 full no room"}) {
				t.Errorf("got %q", got)
			}
			if n, err := d.Backlogs(t.Context(), []string{"u:t:v", "u:t:u"}); err != nil || !slices.Equal(n, []int64{0, 2}) {
				t.Errorf("counted %v, %v", n, err)
			}
		}
		d.must(d.client.Del(t.Context(), d.key.Backlogs()).Err())
		d.text("backlogs")
		before := d.all()
		var broken *BrokenKeyError
		if _, err := d.bounded("b", 1); !errors.As(err, &broken) || broken.Key != d.key.Backlogs() {
			t.Errorf("%v", err)
		}
		if after := d.all(); !maps.Equal(before, after) {
			t.Errorf("was %v\nis  %v", before, after)
		}
	})
}
