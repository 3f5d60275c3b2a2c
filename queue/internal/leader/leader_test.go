package leader

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/waterclock/waterclock/queue/internal/clock"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
	"github.com/waterclock/waterclock/queue/internal/worker"
)

// idle returns a worker that does nothing, and knows no time yet.
func idle() *worker.Worker {
	return worker.New(worker.Config{Name: "w", Places: worker.NewPlaces(100), Lease: 15 * time.Second, Log: slog.New(slog.DiscardHandler)}, clock.New(nil), nil)
}

// A leader whose clock is unknown gives itself no jobs.
func TestAnUnknownClockGivesNoPlace(t *testing.T) {
	w := idle()
	f := fleet{w: w, members: []*member{{}}}
	if place := f.Next(); place != nil {
		t.Errorf("a place with slots %v ahead", clock.Micros(place.Ahead))
	}
	now := time.Now()
	w.Clock.Observe(store.Reading{Now: now.UnixMicro(), Asked: now, Answered: now})
	if f.Next() == nil {
		t.Error("no place, and the time is known")
	}
}

// What is to be told with commits that came to nothing is told later in the same order.
func TestOrdersKeepTheirOrder(t *testing.T) {
	term := &term{w: idle(), sched: schedule.New(schedule.Settings{}, ""), orders: []order{{worker: "third"}}}
	term.undo([]*inflight{{t: term, orders: []order{{worker: "first"}}}, {t: term, orders: []order{{worker: "second"}}}})
	var told []string
	for _, o := range term.orders {
		told = append(told, o.worker)
	}
	if !slices.Equal(told, []string{"first", "second", "third"}) {
		t.Errorf("told: %v", told)
	}
}

// sums are what a leader counts jobs' waits as.
type sums struct {
	worker.Metrics
	waited map[string]time.Duration
}

func (s sums) Waited(cause string, d time.Duration) { s.waited[cause] += d }

// The wait of a job that missed its slot was counted when it was claimed before.
func TestAWaitIsCountedOnce(t *testing.T) {
	got := sums{waited: make(map[string]time.Duration)}
	term := &term{w: worker.New(worker.Config{Name: "w", Places: worker.NewPlaces(100), Metrics: got, Log: slog.New(slog.DiscardHandler)}, clock.New(nil), nil)}
	start := func(late int64) schedule.Start {
		return schedule.Start{Head: schedule.Head{Env: &envelope.Envelope{Late: late}}, Wait: schedule.Wait{Rules: 1_000_000, Places: 2_000}}
	}
	term.waited([]schedule.Start{start(0), start(50_000), start(0)})
	if len(got.waited) != 2 || got.waited[worker.WaitRules] != 2*time.Second || got.waited[worker.WaitPlaces] != 4*time.Millisecond {
		t.Errorf("waited for %v, want 2s for rules and 4ms for places", got.waited)
	}
}
