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

// A job that takes the place of one that has come back, under its collapse key, stands there as that one did.
func TestAReplacedJobKeepsItsPlace(t *testing.T) {
	onDesks(t, func(t *testing.T, d *desk) {
		f, lane := d.lead("w"), Lane{Tenant: "t0", User: "u", Priority: envelope.Normal}
		comeBack := func(slot int64, key string) {
			job := envelope.Envelope{Stamp: envelope.Stamp(slot), Slot: slot, Cost: 1, MaxAttempts: 1, Priority: envelope.Normal, Type: fmt.Sprint(slot)}
			entry, c := job.String(), d.NewCommit()
			if key != "" {
				c.Fold(Folded{Tenant: "t0", User: "u", Key: envelope.FoldName(key)}, entry)
				entry = "=" + envelope.FoldName(key)
			}
			c.PutFirst(lane, entry, envelope.Place{Slot: slot, Stamp: job.Stamp}, 3)
			_, err := d.Commit(t.Context(), f, c)
			d.must(err)
			f.Seq++
		}
		comeBack(1, "k")
		comeBack(2, "")
		newer := jobOf(0, "u", "\x00\x05newerpayload")
		newer.Collapse = "k"
		if got := said(d.offerAll("b", newer)); !strings.HasPrefix(got[0], "r") {
			t.Errorf("the newer job is %q, want it to replace the older one", got)
		}
		comeBack(3, "")
		var types []string
		for _, entry := range d.client.LRange(t.Context(), d.key.Lane(lane), 0, -1).Val() {
			if name, stub := strings.CutPrefix(entry, "="); stub {
				entry = d.client.HGet(t.Context(), d.key.Fold("t0", "u"), name).Val()
			}
			job, err := envelope.Open(entry)
			d.must(err)
			types = append(types, job.Type)
		}
		if want := []string{"newer", "2", "3"}; !slices.Equal(types, want) {
			t.Errorf("the lane holds %q, want %q", types, want)
		}
	})
}
