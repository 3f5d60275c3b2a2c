package queue

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"time"
)

// errLeaseLost is the cause of a handler's cancelled context when its job was taken back.
var errLeaseLost = errors.New("queue: the lease was lost; the job belongs to another worker")

// claims are the pulled jobs of one puller. It keeps their leases alive.
type claims struct {
	scripts *scripts
	lease   time.Duration
	log     *slog.Logger

	mu        sync.Mutex
	renewed   time.Time                          // when all were, last
	held      map[string]context.CancelCauseFunc // by token; nil before the start
	unstarted []string                           // to be handed back
}

func newClaims(s *scripts, lease time.Duration, log *slog.Logger) *claims {
	return &claims{scripts: s, lease: lease, log: log, renewed: time.Now(), held: make(map[string]context.CancelCauseFunc)}
}

// hold keeps the lease of a job alive. cancel, if not nil, is called when it is lost.
func (c *claims) hold(token string, cancel context.CancelCauseFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[token] = cancel
}

// drop lets go of a job.
func (c *claims) drop(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, token)
}

// handBack marks a job that will not start here.
func (c *claims) handBack(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, token)
	c.unstarted = append(c.unstarted, token)
}

func (c *claims) takeUnstarted() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	tokens := c.unstarted
	c.unstarted = nil
	return tokens
}

func (c *claims) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.held)
}

func (c *claims) tokens() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	tokens := make([]string, 0, len(c.held))
	for token := range c.held {
		tokens = append(tokens, token)
	}
	return tokens
}

// Run renews all leases three times a lease, until ctx ends.
func (c *claims) Run(ctx context.Context) {
	trouble := newTrouble(c.log, "renewing leases")
	wait := c.lease / 3
	for {
		sleep(ctx, wait)
		if ctx.Err() != nil {
			return
		}
		wait = c.lease / 3
		if retry := trouble.after(c.renew(ctx)); retry > 0 {
			wait = min(retry, c.lease/10) // there is no lease to lose by waiting longer
		}
	}
}

// renewOverdue renews the leases if that did not work for some time, and does nothing
// else in vain: the next pull would take expired ones back, be they the worker's own.
func (c *claims) renewOverdue(ctx context.Context) {
	c.mu.Lock()
	overdue := len(c.held) > 0 && time.Since(c.renewed) > c.lease/2
	c.mu.Unlock()
	if overdue {
		_ = c.renew(ctx) // Run says if it does not work
	}
}

// renew renews all leases and cancels what runs without one.
func (c *claims) renew(ctx context.Context) error {
	const batch = 500
	began := time.Now()
	tokens := c.tokens()
	for len(tokens) > 0 {
		n := min(batch, len(tokens))
		reply, err := c.scripts.run(ctx, c.scripts.renew, tokenArgs(tokens[:n], c.lease.Microseconds())...).Slice()
		if err != nil {
			return err
		}
		for _, lost := range reply[1:] {
			if token, ok := lost.(string); ok {
				c.lose(token)
			}
		}
		tokens = tokens[n:]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.renewed = began
	return nil
}

func (c *claims) lose(token string) {
	c.mu.Lock()
	cancel, held := c.held[token]
	c.mu.Unlock()
	if held && cancel != nil {
		c.log.Warn("lost the lease of a running job: it will run again elsewhere", "token", token)
		cancel(errLeaseLost)
	}
}

// acks are the finished jobs that Redis does not know of yet. They ride along with the
// next pull, or go by themselves if none comes soon.
type acks struct {
	scripts *scripts
	log     *slog.Logger
	ready   chan struct{}

	mu     sync.Mutex
	tokens []string
	since  time.Time // when the first of them finished
}

// ackDelay is how long a finished job waits for others, or for a pull, to be
// acknowledged with.
const ackDelay = 3 * time.Millisecond

func newAcks(s *scripts, log *slog.Logger) *acks {
	return &acks{scripts: s, log: log, ready: make(chan struct{}, 1)}
}

func (a *acks) add(token string) {
	a.giveBack([]string{token})
	signal(a.ready)
}

// take returns tokens to acknowledge; after trouble they are given back.
func (a *acks) take() []string {
	const batch = 500
	a.mu.Lock()
	defer a.mu.Unlock()
	n := min(batch, len(a.tokens))
	taken := a.tokens[:n:n]
	a.tokens = a.tokens[n:]
	return taken
}

func (a *acks) giveBack(tokens []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.tokens) == 0 {
		a.since = time.Now()
	}
	a.tokens = append(a.tokens, tokens...)
}

// overdue returns how long the pulls have still to take along what is finished.
func (a *acks) overdue() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.tokens) == 0 {
		return ackDelay
	}
	return time.Until(a.since.Add(ackDelay))
}

// Run acknowledges what no pull took along, until ctx ends.
func (a *acks) Run(ctx context.Context) {
	trouble := newTrouble(a.log, "acknowledging")
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.ready:
		}
		sleep(ctx, ackDelay)
		for wait := a.overdue(); wait > 0 && wait < ackDelay; wait = a.overdue() {
			sleep(ctx, wait)
		}
		for retry := trouble.after(a.send(ctx)); retry > 0 && ctx.Err() == nil; retry = trouble.after(a.send(ctx)) {
			sleep(ctx, retry)
		}
	}
}

// send acknowledges everything that is finished.
func (a *acks) send(ctx context.Context) error {
	for {
		tokens := a.take()
		if len(tokens) == 0 {
			return nil
		}
		if err := a.scripts.run(ctx, a.scripts.ack, tokenArgs(tokens)...).Err(); err != nil {
			a.giveBack(tokens)
			return err
		}
	}
}

// flush sends the last acknowledgements of a worker that stops.
func (a *acks) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lastPatience)
	defer cancel()
	err := a.send(ctx)
	for err != nil && ctx.Err() == nil {
		sleep(ctx, 100*time.Millisecond)
		err = a.send(ctx)
	}
	if err != nil {
		a.log.Error("could not acknowledge finished jobs: they will run again", "jobs",
			strconv.Itoa(len(a.tokens)), "err", err)
	}
}
