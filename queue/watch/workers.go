package watch

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// WorkerStats are the state of one worker.
type WorkerStats struct {
	Worker  string        `json:"worker"` // the name of its run; it has one in each partition: that in the first
	Host    string        `json:"host"`   // and process
	Since   time.Time     `json:"since"`
	Places  int           `json:"places"`
	Running int           `json:"running"`  // claims
	Doubt   time.Duration `json:"doubt_ns"` // how far its idea of Redis's clock may be off
	Late    time.Duration `json:"late_ns"`  // 99 of 100 jobs that it started in the last minute came sooner after their slots
	Alive   bool          `json:"alive"`    // its lease holds; otherwise its jobs come back soon
	Leads   bool          `json:"leads"`    // it decides for the queue, or for partitions of it

	// Led is how many partitions it decides for, if the queue has several; otherwise 0.
	Led int `json:"-"`

	of string // its name in the whole queue
}

// Workers returns the workers of the queue, in the order of their names. In a queue with partitions a worker of which some leases hold
// and others do not is there twice, once with what it has where it is alive, and once with the rest.
func (w *Watcher) Workers(ctx context.Context) ([]WorkerStats, error) {
	fleets, err := w.fleets(ctx)
	if err != nil {
		return nil, err
	}
	return w.crew(ctx, fleets)
}

// fleets returns the workers of each partition.
func (w *Watcher) fleets(ctx context.Context) ([][]WorkerStats, error) {
	return inEach(ctx, w, "inspecting", func(l *look) ([]WorkerStats, error) { return l.workers(ctx) })
}

// crew returns the workers of the queue, those that take part in no partition, too.
func (w *Watcher) crew(ctx context.Context, fleets [][]WorkerStats) ([]WorkerStats, error) {
	if len(fleets) == 1 {
		return fleets[0], nil
	}
	root := look{store: w.root}
	present, err := root.workers(ctx)
	if err != nil {
		return nil, w.failed("inspecting", err)
	}
	present = slices.DeleteFunc(present, func(w WorkerStats) bool { return !w.Alive })
	return together(append(slices.Clone(fleets), present)), nil
}

// together returns the workers of all partitions, each once: a worker has another name in each of them, and says which worker it is.
func together(fleets [][]WorkerStats) []WorkerStats {
	type member struct {
		of    string
		alive bool
	}
	all, at := []WorkerStats{}, make(map[member]int)
	for _, w := range slices.Concat(fleets...) {
		if w.Leads {
			w.Led = 1
		}
		is := member{w.of, w.Alive}
		if k, known := at[is]; known {
			all[k].join(w)
		} else {
			at[is] = len(all)
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(a, b WorkerStats) int { return cmp.Compare(a.Worker, b.Worker) })
	return all
}

// join adds what the same worker is in another partition. There it has the places that it has not taken in others: so those that it has
// taken here are to be added.
func (s *WorkerStats) join(other WorkerStats) {
	if s.Places > 0 || other.Places > 0 { // otherwise it stops
		s.Places = min(s.Places+other.Running, other.Places+s.Running)
	}
	s.Running += other.Running
	if other.Since.Before(s.Since) {
		s.Since = other.Since
	}
	s.Doubt, s.Late = max(s.Doubt, other.Doubt), max(s.Late, other.Late)
	s.Leads, s.Led = s.Leads || other.Leads, s.Led+other.Led
}

// workers returns those of a partition, in the order of their names.
func (l *look) workers(ctx context.Context) ([]WorkerStats, error) {
	fleet, err := l.store.Fleet(ctx)
	if err != nil {
		return nil, err
	}
	meta, err := l.store.Meta(ctx)
	if err != nil {
		return nil, err
	}
	now, err := l.store.Clock(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]WorkerStats, len(fleet))
	for k, w := range fleet {
		all[k] = WorkerStats{
			Worker: w.Name, Host: w.Host, Since: envelope.Instant(w.Since), Places: w.Places, Running: w.Claims, Doubt: w.Doubt, Late: w.Late,
			Alive: w.Lease > now.Now, Leads: w.Name == meta.Leader && meta.Till >= now.Now, of: cmp.Or(w.Of, w.Name),
		}
	}
	return all, nil
}
