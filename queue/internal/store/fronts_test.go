package store

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A part of an index begins behind a member, whether that is there or not, in the order of Redis: by bounds, and by the bytes of the
// names of one bound.
func TestPartsOfAnIndex(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		f := d.lead("a")
		var all []Bounded
		for i := range 300 {
			all = append(all, Bounded{fmt.Sprintf("u%d", i), 5}, Bounded{fmt.Sprintf("U%d", i), 5})
		}
		all = append(all, Bounded{"u1%20", 5}, Bounded{"u1|label", 5}, Bounded{"a", 6}, Bounded{"z", 4})
		for _, b := range all {
			d.must(d.client.ZAdd(t.Context(), "wc:{q}:due:t", redis.Z{Score: float64(b.At), Member: b.Name}).Err())
		}
		slices.SortFunc(all, func(a, b Bounded) int { return cmp.Or(cmp.Compare(a.At, b.At), strings.Compare(a.Name, b.Name)) })
		for _, from := range []Bounded{
			{"", 0}, {"", 5}, {"z", 4}, {"A", 5}, {"U0", 5}, {"U10", 5}, {"U100x", 5}, {"u", 5}, {"u1", 5}, {"u1|", 5}, {"u299", 5}, {"u99", 5}, {"zz", 5}, {"a", 6}, {"", 7}, {"x", 9},
		} {
			var want []Bounded
			for _, b := range all {
				if n := 7; len(want) < n && (b.At > from.At || b.At == from.At && (from.Name == "" || b.Name > from.Name)) {
					want = append(want, b)
				}
			}
			c := d.NewCommit()
			c.ReadFront("t", 1, Span{From: from.At, After: from.Name, N: 7})
			reply, err := d.Commit(t.Context(), f, c)
			d.must(err)
			f.Seq++
			if found := reply.Fronts[0]; !slices.Equal(found, want) {
				t.Errorf("behind %v: %v, want %v", from, found, want)
			}
		}
	})
}
