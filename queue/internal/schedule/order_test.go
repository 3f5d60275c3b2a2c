package schedule_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
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

// Users whose first jobs come at the same instant start in the order in which they came.
func TestUsersOfOneInstant(t *testing.T) {
	s := onShelf(t, nil, schedule.Policy{})
	s.put("t", "first", nil)
	s.decide() // the leader knows by now that nobody else waits
	want := []string{"first"}
	for i := range 100 {
		user := fmt.Sprint("u", i*37%100)
		want = append(want, user)
		s.put("t", user, nil)
	}
	s.decide()
	var got []string
	for _, start := range s.starts {
		got = append(got, start.Lane.User)
	}
	if !slices.Equal(got, want) {
		t.Errorf("started %v, want %v", got, want)
	}
}

// A letter about a job that had left its lane before the letter was read keeps nobody
// waiting: what was read since knows better.
func TestALateLetter(t *testing.T) {
	s := onShelf(t, nil, schedule.Policy{Tenant: rules.Compile(0, rules.Rule{Kind: rules.FixedWindow, Limit: 3, Period: time.Hour})})
	s.put("t", "u", nil)
	s.decide()
	gone := &envelope.Envelope{Stamp: fmt.Sprintf("%013x", s.now), Cost: 3, MaxAttempts: 3, Priority: envelope.High, Type: "x"}
	s.now += 1000
	s.s.Look("t", "v", s.now)
	s.s.Notice(envelope.Lane{Tenant: "t", User: "v", Priority: envelope.High}, schedule.Head{Entry: gone.String(), Job: gone.String(), Env: gone}, s.now)
	s.put("t", "w", nil)
	s.decide()
	if len(s.starts) != 2 {
		t.Errorf("%d starts, want 2: nothing waits for a job that is gone", len(s.starts))
	}
}
