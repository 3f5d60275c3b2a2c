package leader

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/waterclock/waterclock/queue/internal/clock"
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
