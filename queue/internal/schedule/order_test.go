package schedule_test

import (
	"testing"

	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// turns hands out a place far away and one nearby by turns.
type turns struct{ n int }

func (t *turns) Next() *schedule.Place {
	p := &schedule.Place{Worker: "near", Taken: func() { t.n++ }}
	if t.n%2 == 0 {
		p.Worker, p.Ahead = "far", 10_000
	}
	return p
}

// TestNoOvertaking gives the jobs of a lane to workers far and near by turns: none gets an
// earlier slot than the one before it.
func TestNoOvertaking(t *testing.T) {
	c := newCrowd(&schedule.Policies{Default: "p", Policies: map[string]schedule.Policy{"p": {}}}, map[string]int{"t u": 1})
	var starts []schedule.Start
	places := &turns{}
	for range 20 {
		starts = append(starts, c.s.Decide(c.now, places, 100).Starts...)
		if needs := c.s.Needs(); !needs.Empty() {
			c.answer(needs)
		}
	}
	if len(starts) < 10 {
		t.Fatalf("%d starts", len(starts))
	}
	for i := 1; i < len(starts); i++ {
		if starts[i].Slot < starts[i-1].Slot {
			t.Errorf("start %d at %s has a slot %d µs before that of the one before it", i, starts[i].Worker, starts[i-1].Slot-starts[i].Slot)
		}
	}
}
