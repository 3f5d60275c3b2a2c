package watch

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A Condition is the state of a queue in one word.
type Condition string

// The conditions of a queue.
const (
	Idle      Condition = "idle"      // nothing waits
	Throttled Condition = "throttled" // what waits, waits for its limits: all is as configured, nothing is overdue
	Flowing   Condition = "flowing"   // jobs are overdue, places are free, and they start one after the other
	Failing   Condition = "failing"   // most of the last attempts have failed
	Starved   Condition = "starved"   // jobs are overdue, and all places are taken
	Paused    Condition = "paused"    // the whole queue is paused
	Stalled   Condition = "stalled"   // jobs wait, and no worker lives or none leads: in a queue with partitions, in one of them
)

// Health is how a queue is at one moment.
type Health struct {
	Condition Condition `json:"condition"` // in one word
	Detail    string    `json:"detail"`    // for people: what was seen

	Waiting int64 `json:"waiting"` // jobs in lanes
	Running int64 `json:"running"` // jobs that are claimed and not yet done
	Places  int   `json:"places"`  // of the workers that live
	Workers int   `json:"workers"` // that live

	// Overdue is how many of the tenants looked at have a job that may start and does not: limits have let it start for
	// longer than the quarter of a second that a leader may take. Oldest is how long ago they allowed the first of these
	// jobs to start; the time for which it waited for its limits does not count.
	Overdue int           `json:"overdue"`
	Oldest  time.Duration `json:"oldest_ns"`

	// RecentAttempts is how many attempts have ended lately: about the last twenty, or those of
	// about ten seconds. RecentFailed is how many of them have failed, and RecentError the last
	// error. All are zero if no attempt has failed within half an hour. Of a queue with partitions
	// they are the sums of those partitions in which one has.
	RecentAttempts int64  `json:"recent_attempts"`
	RecentFailed   int64  `json:"recent_failed"`
	RecentError    string `json:"recent_error,omitempty"`
}

// fewAttempts are too few to say that most of them fail.
const fewAttempts = 5

// failureMemory is for how long a failure counts.
const failureMemory = 30 * time.Minute

// healthSample is how many tenants are looked at, and how many users of each.
const healthSample = 20

// Health returns the condition of the queue. It looks at the tenants and users that are due
// first, so that its cost does not depend on how many jobs wait: at twenty tenants, or at five of
// each partition if that is more.
func (w *Watcher) Health(ctx context.Context) (Health, error) {
	h, _, err := w.health(ctx)
	return h, err
}

// health returns the numbers of the queue that it has looked at, too.
func (w *Watcher) health(ctx context.Context) (h Health, stats queue.Stats, err error) {
	if stats, err = w.Stats(ctx); err != nil {
		return h, stats, err
	}
	fleets, err := w.fleets(ctx)
	if err != nil {
		return h, stats, err
	}
	pauses, err := w.Pauses(ctx)
	if err != nil {
		return h, stats, err
	}
	h.Waiting, h.Running = stats.Waiting, stats.Running
	if err := w.failing(ctx, &h, stats); err != nil {
		return h, stats, err
	}
	all, err := w.crew(ctx, fleets)
	if err != nil {
		return h, stats, err
	}
	for _, w := range all {
		if w.Alive {
			h.Workers++
			h.Places += w.Places
		}
	}
	if err := w.overdue(ctx, &h); err != nil {
		return h, stats, err
	}
	h.Condition, h.Detail = h.judge(leaderless(fleets, h.Workers), pauses)
	return h, stats, nil
}

// failing notes how the last attempts have ended in each partition, if that is not long ago. In one in which nothing runs any more
// they stay as they are.
func (w *Watcher) failing(ctx context.Context, h *Health, stats queue.Stats) error {
	if stats.RecentAt.IsZero() {
		return nil
	}
	all, err := inEach(ctx, w, "inspecting", func(l *look) (store.LastAttempts, error) {
		last := store.LastAttempts{
			Done: stats.RecentAttempts - stats.RecentFailed, Failed: stats.RecentFailed, At: envelope.Micros(stats.RecentAt), Error: stats.RecentError,
		}
		if l.store.Of > 1 { // those are the sums
			totals, err := l.store.Totals(ctx)
			if err != nil {
				return last, err
			}
			last = totals.Last
		}
		clock, err := l.store.Clock(ctx)
		if clock.Now-last.At >= failureMemory.Microseconds() {
			return store.LastAttempts{}, err
		}
		return last, err
	})
	newest := int64(0)
	for _, last := range all {
		h.RecentAttempts, h.RecentFailed = h.RecentAttempts+last.Done+last.Failed, h.RecentFailed+last.Failed
		if last.At > newest {
			newest, h.RecentError = last.At, last.Error
		}
	}
	return err
}

// leaderless says where none of the workers leads; "" if one does in each partition.
func leaderless(fleets [][]WorkerStats, workers int) string {
	var none []string
	for number, fleet := range fleets {
		if !slices.ContainsFunc(fleet, func(w WorkerStats) bool { return w.Alive && w.Leads }) {
			none = append(none, strconv.Itoa(number))
		}
	}
	switch len(none) {
	case 0:
		return ""
	case len(fleets):
		return fmt.Sprintf("none of %s leads", count(workers, "worker", "workers"))
	case 1:
		return "partition " + none[0] + " has no leader"
	}
	return "partitions " + strings.Join(none, ", ") + " have no leader"
}

// judge finds the word for what was seen. Leaderless says where no worker leads.
func (h Health) judge(leaderless string, pauses []queue.Pause) (Condition, string) {
	for _, p := range pauses {
		if p.Scope == queue.ScopeQueue {
			return Paused, "the queue is paused until " + p.Until.Format(time.RFC3339)
		}
	}
	switch {
	case h.Waiting > 0 && h.Workers == 0:
		return Stalled, count(h.Waiting, "job waits", "jobs wait") + ", and no worker lives"
	case h.Waiting > 0 && leaderless != "":
		return Stalled, count(h.Waiting, "job waits", "jobs wait") + ", and " + leaderless
	case h.RecentAttempts >= fewAttempts && 2*h.RecentFailed > h.RecentAttempts:
		return Failing, fmt.Sprintf("%d of the last %d attempts have failed, the last one with: %s", h.RecentFailed, h.RecentAttempts, h.RecentError)
	case h.Waiting == 0:
		return Idle, "nothing waits"
	case h.Overdue > 0 && h.Running >= int64(h.Places):
		return Starved, fmt.Sprintf("jobs of %s may start, and all of %d places are taken", count(h.Overdue, "tenant", "tenants"), h.Places)
	case h.Overdue > 0:
		return Flowing, fmt.Sprintf("%d of %d places are taken", h.Running, h.Places)
	}
	return Throttled, fmt.Sprintf("%s; %d of %d places are taken", count(h.Waiting, "job waits for its limits", "jobs wait for their limits"), h.Running, h.Places)
}

// count writes a number and what it is of.
func count[N int | int64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", many)
}

// overdue counts the tenants with a job that is overdue, of those that are due first.
func (w *Watcher) overdue(ctx context.Context, h *Health) error {
	if h.Waiting == 0 {
		return nil
	}
	late, err := inEach(ctx, w, "inspecting", func(l *look) ([]time.Duration, error) {
		tenants, err := l.store.DuePage(ctx, 0, l.share(healthSample))
		if err != nil {
			return nil, err
		}
		return l.lateness(ctx, tenants)
	})
	for _, d := range slices.Concat(late...) {
		if d > 0 {
			h.Overdue++
			h.Oldest = max(h.Oldest, d)
		}
	}
	return err
}
