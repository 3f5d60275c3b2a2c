package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// Jobs that come back in any order, in commits of any size, stand in the order of their places, before all that have not come
// back: whether they stand in the lane themselves or under collapse keys.
func TestJobsThatComeBackFindTheirPlaces(t *testing.T) {
	onDesks(t, func(t *testing.T, d *desk) {
		random := sample.Rand(t, sample.SeedOf(t))
		f := d.lead("w")
		lane := laneOf("u")
		d.offer("u", nil)
		waits := d.client.LRange(t.Context(), d.key.Lane(lane), 0, -1).Val()
		type back struct {
			place envelope.Place
			entry string // what stands in the lane
		}
		var all []back
		for order := random.Perm(sample.Size(60, 300, 3000)); len(order) > 0; {
			c := d.NewCommit()
			for range min(len(order), 1+random.IntN(9)) {
				n := order[0]
				order = order[1:]
				job := envelope.Envelope{Stamp: envelope.Stamp(int64(1000 + n)), Slot: int64(1 + n/3), Cost: 1, MaxAttempts: 1, Priority: envelope.Normal, Type: "x"}
				entry := job.String()
				if n%4 == 0 {
					folded := Folded{Tenant: lane.Tenant, User: lane.User, Key: envelope.FoldName(fmt.Sprint("k", n))}
					c.Fold(folded, entry)
					entry = "=" + folded.Key
				}
				place := envelope.Place{Slot: job.Slot, Stamp: job.Stamp}
				c.PutFirst(lane, entry, place, 3)
				all = append(all, back{place, entry})
			}
			_, err := d.Commit(t.Context(), f, c)
			d.must(err)
			f.Seq++
		}
		slices.SortFunc(all, func(a, b back) int { return strings.Compare(a.place.String(), b.place.String()) })
		var want []string
		for _, b := range all {
			want = append(want, b.entry)
		}
		if got := d.client.LRange(t.Context(), d.key.Lane(lane), 0, -1).Val(); !slices.Equal(got, append(want, waits...)) {
			t.Errorf("the lane holds %q,\nwant %q", got, append(want, waits...))
		}
	})
}
