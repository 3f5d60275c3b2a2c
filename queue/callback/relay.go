package callback

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/internal/retry"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// Queue returns the name of the queue of the callbacks of a queue's jobs: "push-callbacks" for "push".
func Queue(name string) string { return store.CallbackQueue(name) }

// Config configures a [Relay]. Redis is required.
type Config struct {
	Redis redis.UniversalClient

	// Queues are those whose jobs have callbacks. Empty means all that there are, those of later too.
	Queues []string

	// Logger gets errors and warnings. nil is slog.Default().
	Logger *slog.Logger
}

// A Relay offers the callbacks of jobs that have ended.
type Relay struct {
	cfg Config
}

// NewRelay returns a relay, or an error wrapping [queue.ErrInvalidArgument] for a name that no queue can have.
func NewRelay(cfg Config) (*Relay, error) {
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	for _, name := range cfg.Queues {
		if _, err := open(cfg, name); err != nil {
			return nil, err
		}
	}
	return &Relay{cfg}, nil
}

// How often a relay looks for ends, for queues and partitions that it did not know, and how many ends of a kind it takes at a time.
const (
	looks   = 250 * time.Millisecond
	surveys = 5 * time.Second
	batch   = 500
)

// Run offers callbacks until ctx ends, and returns nil. While Redis cannot be reached it waits. A queue in trouble holds up no
// other.
func (r *Relay) Run(ctx context.Context) error {
	var queues sync.WaitGroup
	defer queues.Wait()
	running := make(map[string]bool)
	trouble := retry.NewTrouble(r.cfg.Logger, "looking for queues")
	for ctx.Err() == nil {
		names, err := r.queues(ctx)
		for _, name := range names {
			if running[name] {
				continue
			}
			running[name] = true
			if o, err := open(r.cfg, name); err == nil { // otherwise no queue of callbacks can have such a name, and no job has one
				queues.Go(func() { o.run(ctx) })
			}
		}
		retry.Pause(ctx, max(surveys, trouble.After(err)))
	}
	return nil
}

// queues returns the names of the queues that there are, or that the relay is for.
func (r *Relay) queues(ctx context.Context) ([]string, error) {
	if len(r.cfg.Queues) > 0 {
		return r.cfg.Queues, nil
	}
	return store.Queues(ctx, r.cfg.Redis)
}

// An origin is a queue whose jobs have callbacks.
type origin struct {
	lines *store.Partitions[*line]
	log   *slog.Logger
}

func open(cfg Config, name string) (*origin, error) {
	ends, err := store.New(cfg.Redis, name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", queue.ErrInvalidArgument, err)
	}
	client, err := queue.NewClient(cfg.Redis, Queue(name))
	if err != nil {
		return nil, err
	}
	log := cfg.Logger.With("queue", name)
	return &origin{store.NewPartitions(ends, func(s *store.Store) *line {
		log := log
		if s.Of > 1 {
			log = log.With("partition", s.Number)
		}
		return &line{name, s, client, log}
	}), log}, nil
}

// run tells of the ends in all partitions until ctx ends. A queue that nobody has used yet has one partition, until somebody divides
// it.
func (o *origin) run(ctx context.Context) {
	trouble := retry.NewTrouble(o.log, "looking for the partitions")
	stop, running := func() {}, 0
	for ctx.Err() == nil {
		all, err := o.lines.All(ctx)
		if err == nil && len(all) != running {
			stop()
			stop, running = tellOf(ctx, all), len(all)
		}
		retry.Pause(ctx, cmp.Or(trouble.After(err), surveys))
	}
	stop()
}

// tellOf tells of the ends in each of some partitions until the returned function is called. A partition in trouble holds up no other.
func tellOf(ctx context.Context, all []*line) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var lines sync.WaitGroup
	for _, l := range all {
		lines.Go(func() { l.run(ctx) })
	}
	return func() {
		cancel()
		lines.Wait()
	}
}

// A line is the way from the ends of a partition's jobs to the queue of the callbacks.
type line struct {
	queue  string
	ends   *store.Store
	client *queue.Client
	log    *slog.Logger
}

// run tells of ends until ctx ends.
func (l *line) run(ctx context.Context) {
	trouble := retry.NewTrouble(l.log, "telling how jobs have ended")
	for ctx.Err() == nil {
		more, err := l.tell(ctx)
		if wait := max(looks, trouble.After(err)); !more {
			retry.Pause(ctx, wait)
		}
	}
}

// tell offers the callbacks of some ends, and reports whether there may be more. In this order: a relay that dies in
// between offers them again, and each is a duplicate then.
//
//  1. read ends that were not told
//  2. offer a job for each, with an ID made of its entry
//  3. note how far the ends were told
func (l *line) tell(ctx context.Context) (more bool, err error) {
	ends, until, more, err := l.ends.Ends(ctx, batch)
	if err != nil {
		return false, err
	}
	var jobs []queue.Job
	for _, end := range ends {
		job, err := l.jobOf(end)
		if err != nil { // one that cannot be delivered must not keep the others
			l.log.Warn("a callback cannot be sent", "id", l.idOf(end), "err", err)
			continue
		}
		jobs = append(jobs, job)
	}
	receipts, err := l.client.Enqueue(ctx, jobs...)
	if err != nil {
		return false, err
	}
	full := 0
	for _, receipt := range receipts {
		if receipt.Status == queue.Dropped {
			full++
		}
	}
	if full > 0 {
		l.log.Warn("callbacks were dropped by the limits of their queue: see waterclock --queue "+Queue(l.queue)+" drops", "callbacks", full)
	}
	return more, l.ends.Told(ctx, until)
}

// idOf names an end: no two of a queue have the same.
func (l *line) idOf(end store.End) string {
	if l.ends.Of == 1 {
		return end.Stream + "/" + end.Entry
	}
	return fmt.Sprintf("%s/%d/%s", end.Stream, l.ends.Number, end.Entry)
}
