package store

import (
	"errors"
	"testing"
)

// A key of a tenant or a user that has another type counts as empty, and what is read beside it is there.
func TestReadersPassOverAnOwnersBrokenKeys(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		d.offer("u", nil)
		for _, key := range []string{"tenant:x", "lane:t:v", "fold:t:v", "body:b"} {
			d.text(key)
		}
		d.must(d.client.Del(t.Context(), "wc:{q}:body:b").Err())
		d.must(d.client.RPush(t.Context(), "wc:{q}:body:b", "other").Err())
		tenants, err := d.Tenants(t.Context(), []string{"x", "t"})
		d.must(err)
		waiting, err := d.Waiting(t.Context(), []string{"x", "t"})
		d.must(err)
		if tenants[0].Offered != 0 || tenants[1].Offered != 1 || waiting[0] != 0 || waiting[1] != 1 {
			t.Errorf("%+v, %v", tenants, waiting)
		}
		lengths, err := d.Lengths(t.Context(), []Lane{laneOf("v"), laneOf("u")})
		d.must(err)
		entries, err := d.Entries(t.Context(), FirstPages([]Lane{laneOf("v"), laneOf("u")}, 5))
		d.must(err)
		if lengths[0] != 0 || lengths[1] != 1 || len(entries) != 1 || entries[0].Lane != laneOf("u") {
			t.Errorf("%v, %+v", lengths, entries)
		}
		jobs, err := d.FoldedJobs(t.Context(), []Folded{{"t", "v", "k"}})
		d.must(err)
		payloads, err := d.Payloads(t.Context(), []string{"b"})
		d.must(err)
		if jobs[0] != "" || payloads[0] != "" {
			t.Errorf("%q, %q", jobs, payloads)
		}
	})
}

// A key of the queue itself that has another type is an error that names it: what it held is not nothing.
func TestReadersNameTheQueuesBrokenKeys(t *testing.T) {
	t.Parallel()
	for key, readers := range map[string][]func(d *desk) error{
		"running:w": {
			func(d *desk) error { _, err := d.Claims(d.t.Context(), []string{"v", "w"}); return err },
			func(d *desk) error { _, err := d.Claimed(d.t.Context(), "w"); return err },
			func(d *desk) error {
				_, err := d.ClaimedJobs(d.t.Context(), []ClaimRef{{Worker: "w", Claim: claimOf("1")}})
				return err
			},
			func(d *desk) error { _, _, err := d.Records(d.t.Context(), []string{"v", "w"}); return err },
			func(d *desk) error { _, err := d.Totals(d.t.Context()); return err },
		},
		"mailbox:w": {func(d *desk) error { _, _, err := d.Records(d.t.Context(), []string{"v", "w"}); return err }},
		"worker:w":  {func(d *desk) error { _, _, err := d.Records(d.t.Context(), []string{"v", "w"}); return err }},
		"workers":   {func(d *desk) error { _, err := d.Totals(d.t.Context()); return err }},
		"later":     {func(d *desk) error { _, err := d.Totals(d.t.Context()); return err }},
		"drops":     {func(d *desk) error { _, err := d.Drops(d.t.Context(), 5); return err }},
		"meta": {
			func(d *desk) error { _, err := d.Meta(d.t.Context()); return err },
			func(d *desk) error { _, err := d.Reapable(d.t.Context(), "w", nil); return err },
		},
	} {
		t.Run(key, func(t *testing.T) {
			onDesks(t, func(t *testing.T, d *desk) {
				if _, err := d.Beat(t.Context(), Beat{Worker: "w", Lease: 1e9}); err != nil {
					t.Fatal(err)
				}
				d.must(d.client.Del(t.Context(), "wc:{q}:"+key).Err())
				d.text(key)
				for i, read := range readers {
					var broken *BrokenKeyError
					if err := read(d); !errors.As(err, &broken) || broken.Key != "wc:{q}:"+key {
						t.Errorf("reader %d: %v", i, err)
					}
				}
			})
		})
	}
}
