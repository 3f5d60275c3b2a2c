package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/waterclock/waterclock/internal/inprocess"
	"github.com/waterclock/waterclock/queue"
)

const (
	queueName = "push"
	workers   = 2
	places    = 6               // jobs that a worker runs at once
	patience  = 2 * time.Minute // the story ends by then, or something is wrong
	longer    = 5 * time.Minute // with a real provider, which may ask to wait
)

// openRedis connects to a Redis, or makes one inside of this process.
func openRedis(ctx context.Context, url string) (client *redis.Client, closeRedis func(), err error) {
	if url == "embedded" {
		client, closeRedis = embeddedRedis()
		return client, closeRedis, nil
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, nil, fmt.Errorf("--redis %s: %w", url, err)
	}
	client = redis.NewClient(options)
	if n, err := client.Exists(ctx, "wc:{"+queueName+"}:meta").Result(); err != nil {
		client.Close()
		return nil, nil, fmt.Errorf("--redis %s: %w", url, err)
	} else if n > 0 {
		client.Close()
		return nil, nil, fmt.Errorf("--redis %s: there is a queue %q already; the story needs one of its own", url, queueName)
	}
	return client, func() { client.Close() }, nil
}

// embeddedRedis makes a Redis inside of this process. Its keys never expire: for a
// minute that makes no difference, since they expire only when they say nothing any more.
func embeddedRedis() (client *redis.Client, closeRedis func()) {
	server := inprocess.New()
	client = inprocess.NewClient(server)
	return client, func() { client.Close(); server.Close() }
}

// A story is three schools, the producers that offer their jobs and the workers that
// start them.
type story struct {
	redis     *redis.Client
	schools   []school
	timetable []act
	night     night
	journal   *journal
	offers    *offers
	providers *providers
	inspector *queue.Inspector
	began     time.Time
}

func newStory(client *redis.Client, p *providers, schools []school, parents int) (*story, error) {
	inspector, err := queue.NewInspector(client, queueName)
	if err != nil {
		return nil, err
	}
	night := nightAt(time.Now())
	return &story{
		redis:     client,
		schools:   schools,
		timetable: timetable(parents, night),
		night:     night,
		journal:   &journal{},
		offers:    &offers{},
		providers: p,
		inspector: inspector,
	}, nil
}

// tell plays the story from beginning to end and returns when no job waits any more.
func (s *story) tell(ctx context.Context, view *board, log *slog.Logger) error {
	limit := patience
	ctx, give := context.WithCancelCause(ctx)
	defer give(nil)
	if s.providers.yours != nil {
		limit = longer
		s.providers.yours.give = give
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New("not through in time; the machine may be too busy"))
	defer cancel()
	if err := s.inspector.SetPolicies(ctx, policies(s.schools)); err != nil {
		return err
	}
	handler, err := s.providers.handler(s.redis, log)
	if err != nil {
		return err
	}
	view.open()
	s.began = time.Now()
	s.providers.begin(s.began)

	// Workers and view go on until the producers are through and nothing waits.
	working, rest := context.WithCancel(ctx)
	defer rest()
	running, working := errgroup.WithContext(working)
	for n := range workers {
		running.Go(func() error { return s.work(working, n+1, handler) })
	}
	running.Go(func() error { return view.run(working) })

	producing, producer := errgroup.WithContext(working)
	producing.Go(func() error { return s.batchProducer(producer, view) })
	producing.Go(func() error { return s.asynqProducer(producer) })
	err = producing.Wait()
	if err == nil {
		err = s.drained(working)
	}
	rest()
	if ended := running.Wait(); ended != nil {
		return ended
	}
	if ctx.Err() != nil {
		return fmt.Errorf("stopped after %.0f s: %w", time.Since(s.began).Seconds(), context.Cause(ctx))
	}
	view.close()
	return err
}

// work is one worker. In production each would be a process of its own.
func (s *story) work(ctx context.Context, n int, deliver asynq.Handler) error {
	w, err := queue.NewWorker(s.redis, queue.WorkerConfig{
		Queues:      []string{queueName},
		Concurrency: places,
		Inbox:       true,
		Logger:      slog.New(slog.DiscardHandler), // the story is what is printed
	})
	if err != nil {
		return err
	}
	return w.Run(ctx, s.journal.handler(n, deliver, s.providers.seen))
}

// batchProducer is the first door: it plays the timetable with a queue.Client, which
// offers any number of jobs in a few round trips and gets a receipt for each.
func (s *story) batchProducer(ctx context.Context, view *board) error {
	client, err := queue.NewClient(s.redis, queueName)
	if err != nil {
		return err
	}
	for _, a := range s.timetable {
		if err := s.sleepUntil(ctx, a.at); err != nil {
			return err
		}
		if a.says != "" {
			view.say(a.says)
		}
		if err := s.address(a.jobs); err != nil {
			return err
		}
		// In parts: the connection to a Redis inside of this process holds back nothing, so
		// that a long pipeline would stand still.
		for part := range slices.Chunk(a.jobs, 100) {
			receipts, err := client.Enqueue(ctx, part...)
			if err != nil {
				return err
			}
			s.offers.add("queue.Client", receipts)
		}
	}
	return nil
}

// address gives the jobs their messages. Those of a school that waits no longer than so
// long expire then.
func (s *story) address(jobs []queue.Job) error {
	for i, j := range jobs {
		var expires time.Time
		for _, school := range s.schools {
			if school.name == j.Tenant && school.maxWait > 0 {
				expires = time.Now().Add(here(school.maxWait))
			}
		}
		payload, err := s.providers.message(j.Tenant, j.User, j.Type, j.CollapseKey, expires)
		if err != nil {
			return err
		}
		jobs[i].Payload = payload
	}
	return nil
}

// asynqProducer is the second door: a service that knows nothing but asynq sends birch's
// homework notes. Two headers are all that makes its tasks jobs of a user of a tenant.
func (s *story) asynqProducer(ctx context.Context) error {
	client := asynq.NewClientFromRedisClient(s.redis)
	for i := range 70 {
		if err := s.sleepUntil(ctx, time.Second+time.Duration(i)*300*time.Millisecond); err != nil {
			return err
		}
		user := fmt.Sprintf("parent-%d", 100+i%40)
		payload, err := s.providers.message(busySchool, user, "push:homework", "", time.Time{})
		if err != nil {
			return err
		}
		task := asynq.NewTaskWithHeaders("push:homework", payload, queue.Headers(busySchool, user))
		info, err := client.EnqueueContext(ctx, task, asynq.Queue(queueName))
		if err != nil {
			return fmt.Errorf("asynq producer: %w", err)
		}
		s.offers.add("asynq.Client", []queue.Receipt{{ID: info.ID, Status: queue.Accepted}})
	}
	return nil
}

// drained returns when everything that was offered has been started or dropped, or waits for a morning.
func (s *story) drained(ctx context.Context) error {
	for at := time.Since(s.began); ; at += 100 * time.Millisecond {
		if err := s.sleepUntil(ctx, at); err != nil {
			return err
		}
		stats, err := s.inspector.Stats(ctx)
		if err != nil {
			return err
		}
		// Dead is what expired between its slot and its start, a matter of milliseconds. The
		// tasks that still lie at the asynq door are in none of these numbers.
		total, asleep := s.offers.total()
		through := stats.Done+stats.Dropped+stats.Dead == int64(total-asleep)
		if through && stats.Waiting+stats.Later+stats.Running == int64(asleep) {
			return nil
		}
	}
}

// sleepUntil waits until the story is that old.
func (s *story) sleepUntil(ctx context.Context, at time.Duration) error {
	timer := time.NewTimer(time.Until(s.began.Add(at)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
