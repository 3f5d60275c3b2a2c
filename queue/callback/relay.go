package callback

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
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

// How often a relay looks for ends, for queues that it did not know, and how many ends of a kind it takes at a time.
const (
	looks   = 250 * time.Millisecond
	surveys = 5 * time.Second
	batch   = 500
)

// Run offers callbacks until ctx ends, and returns nil. While Redis cannot be reached it waits.
func (r *Relay) Run(ctx context.Context) error {
	lines, surveyed := make(map[string]*line), time.Time{}
	trouble := retry.NewTrouble(r.cfg.Logger, "telling how jobs have ended")
	for ctx.Err() == nil {
		err := error(nil)
		if time.Since(surveyed) >= surveys {
			if err = r.survey(ctx, lines); err == nil {
				surveyed = time.Now()
			}
		}
		again := false
		for _, l := range lines {
			more, failed := l.tell(ctx)
			again, err = again || more, cmp.Or(err, failed)
		}
		wait := max(looks, trouble.After(err))
		if again && err == nil {
			wait = 0
		}
		retry.Pause(ctx, wait)
	}
	return nil
}

// survey opens lines of queues that have none.
func (r *Relay) survey(ctx context.Context, lines map[string]*line) error {
	names := r.cfg.Queues
	if len(names) == 0 {
		var err error
		if names, err = store.Queues(ctx, r.cfg.Redis); err != nil {
			return err
		}
	}
	for _, name := range names {
		if lines[name] != nil {
			continue
		}
		l, err := open(r.cfg, name)
		if err != nil {
			continue // no queue for callbacks can have such a name, so no job of it has one
		}
		lines[name] = l
	}
	return nil
}

// A line is the way from the ends of a queue's jobs to the queue of their callbacks.
type line struct {
	queue  string
	ends   *store.Store
	client *queue.Client
	log    *slog.Logger
}

func open(cfg Config, name string) (*line, error) {
	ends, err := store.New(cfg.Redis, name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", queue.ErrInvalidArgument, err)
	}
	client, err := queue.NewClient(cfg.Redis, Queue(name))
	if err != nil {
		return nil, err
	}
	return &line{name, ends, client, cfg.Logger.With("queue", name)}, nil
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
		job, err := jobOf(l.queue, end)
		if err != nil { // one that cannot be delivered must not keep the others
			l.log.Warn("a callback cannot be sent", "id", idOf(end), "err", err)
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

// idOf names an end: no two have the same.
func idOf(end store.End) string {
	return strings.Join([]string{end.Stream, end.Entry}, "/")
}
