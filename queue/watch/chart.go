package watch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A Point is how a queue was at one instant: a point of its charts. Counters count since the
// beginning, so that the rate between two points is the difference, whoever wrote them.
type Point struct {
	At       time.Time      `json:"at"`
	Health   Health         `json:"health"`
	Later    int64          `json:"later"`
	DeadNow  int64          `json:"dead_now"`
	Counters queue.Counters `json:"counters"`

	// Blocked is that of [queue.Stats], for the rules that have cost most.
	Blocked map[string]time.Duration `json:"blocked_ns"`
}

// A Chart is one of the series of points that are kept of a queue.
type Chart int

const (
	LastMinutes Chart = iota // a point a second, for ten minutes
	LastHours                // one every ten seconds, for three hours
	LastDays                 // one every five minutes, for seven days
)

var rings = [...]store.Ring{
	LastMinutes: {Step: time.Second, Points: 600},
	LastHours:   {Step: 10 * time.Second, Points: 1080},
	LastDays:    {Step: 5 * time.Minute, Points: 2016},
}

// Step is the time between two points.
func (c Chart) Step() time.Duration { return rings[c].Step }

// Length is how far the points go back.
func (c Chart) Length() time.Duration { return rings[c].Step * time.Duration(rings[c].Points) }

// chartRules is how many rules a point names.
const chartRules = 8

// Record reads the state of the queue and stores it as a point of its charts. If another program
// has recorded a point within the same second, Record returns that point, at the cost of two
// commands: any number of programs may call it every second.
func (w *Watcher) Record(ctx context.Context) (Point, error) {
	p, err := w.record(ctx)
	return p, w.wrapped("charting", err)
}

func (w *Watcher) record(ctx context.Context) (Point, error) {
	clock, err := w.root.Clock(ctx)
	if err != nil {
		return Point{}, err
	}
	text, err := w.root.Charted(ctx, rings[LastMinutes], clock.Now)
	if err != nil {
		return Point{}, err
	}
	if p, ok := readPoint(text); ok {
		return p, nil
	}
	health, stats, err := w.health(ctx)
	if err != nil {
		return Point{}, err
	}
	p := Point{At: envelope.Instant(clock.Now), Health: health, Later: stats.Later, DeadNow: stats.DeadNow, Counters: stats.Counters, Blocked: worst(stats.Blocked)}
	return p, errors.Join(w.chart(ctx, p, clock.Now), w.recordTenants(ctx, clock.Now))
}

// chart keeps a point. Texts are of the last minutes alone: they are long, and of no use in a line.
func (w *Watcher) chart(ctx context.Context, p Point, at int64) error {
	full, err := json.Marshal(p)
	if err != nil {
		return err
	}
	p.Health.Detail, p.Health.RecentError = "", ""
	short, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := w.root.Chart(ctx, rings[:LastHours], at, string(full)); err != nil {
		return err
	}
	return w.root.Chart(ctx, rings[LastHours:], at, string(short))
}

// worst returns the rules that have cost most.
func worst(blocked map[string]time.Duration) map[string]time.Duration {
	names := slices.SortedFunc(maps.Keys(blocked), func(a, b string) int {
		return cmp.Or(cmp.Compare(blocked[b], blocked[a]), cmp.Compare(a, b))
	})
	kept := make(map[string]time.Duration)
	for _, name := range names[:min(chartRules, len(names))] {
		kept[name] = blocked[name]
	}
	return kept
}

// readPoint reads a point; false if the text is not one.
func readPoint(text string) (p Point, ok bool) {
	return p, text != "" && json.Unmarshal([]byte(text), &p) == nil
}

// Chart returns the points of a chart, oldest first. There are no points of times in which no
// program called [Watcher.Record].
func (w *Watcher) Chart(ctx context.Context, c Chart) ([]Point, error) {
	texts, err := w.root.ChartOf(ctx, rings[c])
	if err != nil {
		return nil, w.failed("reading the charts of", err)
	}
	clock, err := w.root.Clock(ctx)
	if err != nil {
		return nil, w.failed("reading the charts of", err)
	}
	oldest := envelope.Instant(clock.Now).Add(-c.Length())
	var points []Point
	for _, text := range texts {
		if p, ok := readPoint(text); ok && p.At.After(oldest) {
			points = append(points, p)
		}
	}
	slices.SortFunc(points, func(a, b Point) int { return a.At.Compare(b.At) })
	return points, nil
}
