package queue

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

const (
	// pullLead is how much before its slot a job is pulled: it hides the round trip and
	// the scheduling of the worker.
	pullLead = 20 * time.Millisecond
	// pullBatch is how many jobs one pull takes: with more of them, those whose slots lie
	// at its beginning would be late when its reply comes. While there is a backlog, which
	// is late anyway, a pull takes twice as many as the one before, up to backlogBatch.
	pullBatch    = 20
	backlogBatch = 80
	// pullIdle is the longest that a worker sleeps without asking, or a third of a lease if
	// that is shorter (see amnesty_after in claims.lua), in case that whoever
	// should have woken it died.
	pullIdle = 5 * time.Second
	// pullPause is the shortest: Redis did what one script may do, and needs a breath.
	pullPause = 50 * time.Microsecond
)

// A puller is a worker's hand in one queue: it pulls what may start, starts it, and
// sleeps until more may.
type puller struct {
	queue   string
	cfg     WorkerConfig
	name    string
	handler asynq.Handler
	client  redis.UniversalClient
	scripts *scripts
	clock   *redisClock
	places  *places
	metrics *metrics
	log     *slog.Logger

	batch  int // how many jobs the next pull takes
	sent   int // the number of the last pull
	heard  int // the number of the last one that was answered
	waker  *waker
	acks   *acks
	claims *claims
	lates  *lates

	stop     chan struct{}   // closed when nothing may start any more
	waiting  sync.WaitGroup  // jobs that wait for their slot
	running  sync.WaitGroup  // jobs that were pulled
	handling context.Context // parent of the handlers' contexts, ended by kill
	kill     context.CancelFunc
	outlive  context.Context // for what must still reach Redis while the worker stops
}

func newPuller(w *Worker, queue string, h asynq.Handler) *puller {
	log := w.cfg.Logger.With("queue", queue)
	s := newScripts(w.client, queue)
	p := &puller{
		queue: queue, batch: pullBatch, cfg: w.cfg, name: w.name, handler: h, client: w.client, scripts: s,
		clock: newRedisClock(), places: w.places, metrics: w.metrics, log: log,
		waker:  newWaker(w.client, s.prefix, w.name, log),
		acks:   newAcks(s, log),
		claims: newClaims(s, w.cfg.Lease, log),
		stop:   make(chan struct{}),
	}
	p.lates = &lates{scripts: s, clock: p.clock}
	return p
}

// Run pulls until ctx ends and returns when everything that was pulled is done with.
func (p *puller) Run(ctx context.Context) error {
	var cancel context.CancelFunc
	p.outlive, cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.handling, p.kill = context.WithCancel(p.outlive)
	defer cancel()
	var services sync.WaitGroup
	services.Go(func() { p.acks.Run(p.outlive) })
	services.Go(func() { p.claims.Run(p.outlive) })
	services.Go(func() { p.waker.Run(p.outlive) })

	p.pullUntilDone(ctx)
	p.shutdown()
	cancel()
	p.waker.stop()
	services.Wait()
	return nil
}

// pullUntilDone pulls again and again: at once while there are places and jobs, else
// when a place becomes free, when the next job may start, or when woken.
func (p *puller) pullUntilDone(ctx context.Context) {
	trouble := newTrouble(p.log, "pulling")
	for ctx.Err() == nil {
		n, ok := p.takePlaces(ctx)
		if !ok {
			return
		}
		p.claims.renewOverdue(ctx)
		jobs, next, err := p.pull(ctx, n)
		p.batch = nextBatch(p.batch, len(jobs))
		p.places.give(n - len(jobs))
		for _, job := range jobs {
			p.start(job)
		}
		if wait := trouble.after(err); wait > 0 {
			sleep(ctx, wait)
			continue
		}
		if len(jobs) < n {
			p.waker.sleep(ctx, max(pullPause, min(next, pullIdle, p.cfg.Lease/3)))
		}
	}
}

// nextBatch returns how many jobs to ask for after a pull that asked for so many.
func nextBatch(asked, got int) int {
	if got < asked {
		return pullBatch
	}
	return min(2*asked, backlogBatch)
}

// takePlaces waits until there is a free place and takes as many as one pull can fill.
// Without one it could do nothing with being woken: it lets another worker be.
func (p *puller) takePlaces(ctx context.Context) (int, bool) {
	if n := p.places.take(p.batch); n > 0 {
		return n, true
	}
	for {
		select {
		case <-ctx.Done():
			return 0, false
		case <-p.places.free:
			return 1 + p.places.take(p.batch-1), true
		case <-p.waker.woken:
			p.waker.passOn(ctx)
		}
	}
}

// pull takes up to n jobs. The finished ones ride along. It returns how long to sleep
// if not woken before.
func (p *puller) pull(ctx context.Context, n int) (jobs []claim, next time.Duration, err error) {
	finished := p.acks.take()
	var asked, arrived time.Time
	var reply []any
	const tries = 3 // a connection may have broken while it lay idle: that is no trouble yet
	for range tries {
		p.sent++
		args := tokenArgs(finished, p.name, n, pullLead.Microseconds(), p.cfg.Lease.Microseconds(), p.sent, p.heard)
		asked = time.Now()
		reply, err = p.scripts.runOnce(ctx, p.scripts.pull, args...).Slice()
		arrived = time.Now()
		if err == nil || !unreachable(err) {
			break
		}
	}
	if err != nil {
		p.acks.giveBack(finished)
		return nil, 0, err
	}
	p.heard = p.sent
	jobs, now, wakeAt, err := readPull(reply)
	if err != nil {
		return nil, 0, err
	}
	p.clock.observe(asked, arrived, now)
	p.metrics.pulled(p.queue, len(jobs))
	next = pullIdle
	if !wakeAt.IsZero() {
		next = p.clock.until(wakeAt)
	}
	return jobs, next, nil
}

// A claim is a pulled job.
type claim struct {
	envelope
	token string
	slot  time.Time
}

// readPull reads the reply of pull.lua.
func readPull(reply []any) (jobs []claim, now, next time.Time, err error) {
	malformed := fmt.Errorf("queue: malformed reply to a pull")
	if len(reply) < 2 || len(reply)%2 != 0 {
		return nil, now, next, malformed
	}
	clock, ok1 := reply[0].(int64)
	wake, ok2 := reply[1].(int64)
	if !ok1 || !ok2 {
		return nil, now, next, malformed
	}
	if wake >= 0 {
		next = time.UnixMicro(wake)
	}
	for i := 2; i < len(reply); i += 2 {
		token, ok1 := reply[i].(string)
		text, ok2 := reply[i+1].(string)
		if !ok1 || !ok2 {
			return nil, now, next, malformed
		}
		job, err := openClaim(token, text)
		if err != nil {
			return nil, now, next, fmt.Errorf("job with token %s: %w", token, err)
		}
		jobs = append(jobs, job)
	}
	return jobs, time.UnixMicro(clock), next, nil
}

// openClaim reads a claim as the scripts keep it: "slot tenant:user envelope".
func openClaim(token, text string) (claim, error) {
	when, rest, _ := strings.Cut(text, " ")
	lane, sealed, _ := strings.Cut(rest, " ")
	slot, err := strconv.ParseInt(when, 10, 64)
	if err != nil {
		return claim{}, errEnvelope
	}
	e, err := openEnvelope(lane, sealed)
	return claim{envelope: e, token: token, slot: time.UnixMicro(slot)}, err
}

// shutdown hands back what has not started, lets the handlers end, then makes them.
func (p *puller) shutdown() {
	close(p.stop)
	p.waiting.Wait()
	p.release()
	ended := make(chan struct{})
	go func() {
		p.running.Wait()
		close(ended)
	}()
	if !endsWithin(ended, p.cfg.ShutdownTimeout) {
		p.log.Warn("handlers run on after the shutdown timeout; cancelling them",
			"jobs", p.claims.count(), "timeout", p.cfg.ShutdownTimeout)
		p.kill()
		if !endsWithin(ended, lastPatience) {
			p.log.Error("leaving handlers behind that ignore the end of their context; their jobs will run again",
				"jobs", p.claims.count())
		}
	}
	p.acks.flush(p.outlive)
}

// lastPatience bounds every wait of a worker that stops, after ShutdownTimeout.
const lastPatience = 5 * time.Second

func endsWithin(ended chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ended:
		return true
	case <-timer.C:
		return false
	}
}

// release returns the jobs that were pulled but not started to their lanes, and stops
// watching.
func (p *puller) release() {
	ctx, cancel := context.WithTimeout(p.outlive, lastPatience)
	defer cancel()
	tokens := p.claims.takeUnstarted()
	if err := p.scripts.run(ctx, p.scripts.release, tokenArgs(tokens, p.name)...).Err(); err != nil {
		p.log.Warn("could not hand jobs back; they return when their leases expire",
			"jobs", len(tokens), "err", err)
	}
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
