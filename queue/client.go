package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/forecast"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A Client offers jobs into the lanes of one queue. It is safe for concurrent use. It reads the
// policies from Redis, and again when they change.
type Client struct {
	store    *store.Store
	barrier  *barrier // nil if offers wait for nothing
	policies *forecast.PolicyCache
	census   *forecast.CensusCache
}

// An invalidName is an error about the name of a queue.
type invalidName struct{ error }

func (e invalidName) Unwrap() []error { return []error{ErrInvalidArgument, e.error} }

const (
	offerBatch    = 100         // jobs per script call: Redis does nothing else meanwhile
	batchMemory   = time.Minute // how long a batch can be repeated without doubling it
	offerPatience = 30 * time.Second
)

// A ClientConfig says how a client offers. The zero value is that of a client without one.
type ClientConfig struct {
	// Durability is where jobs have to be before Enqueue says that they are accepted.
	Durability Durability
}

// NewClient returns a client of the queue, which is configured by at most one config. The name becomes part of every key: it
// has 1 to 128 bytes without braces, colons and white space, or the error wraps [ErrInvalidArgument].
func NewClient(rdb redis.UniversalClient, queue string, config ...ClientConfig) (*Client, error) {
	s, err := store.New(rdb, queue)
	if err != nil {
		return nil, invalidName{err}
	}
	c := &Client{store: s, policies: forecast.NewPolicyCache(s), census: forecast.NewCensusCache()}
	if len(config) > 1 {
		return nil, fmt.Errorf("%w: NewClient: %d configs; want at most one", ErrInvalidArgument, len(config))
	}
	for _, cfg := range config {
		if cfg.Durability.Replicas < 0 {
			return nil, fmt.Errorf("%w: ClientConfig.Durability.Replicas is %d; want 0 or more", ErrInvalidArgument, cfg.Durability.Replicas)
		}
		if cfg.Durability != (Durability{}) {
			c.barrier = newBarrier(s, cfg.Durability)
		}
	}
	return c, nil
}

// Enqueue offers jobs and returns a receipt for each, in their order. A hundred jobs
// take one round trip, and one more where one of them has a NotBefore or a latest start, or a Callback. Every job is
// checked first: if one is invalid, none is offered and the error, wrapping
// [ErrInvalidJob], says which.
//
// When the connection breaks, or jobs are not yet where [ClientConfig] wants them, Enqueue tries again for half a minute, or
// until ctx ends. A batch that had arrived already is not offered twice by that. If Enqueue gives up, it returns an
// error, and the receipts of the batches before. Whether the other jobs have arrived is unknown;
// those with an ID of their own can safely be offered again.
func (c *Client) Enqueue(ctx context.Context, jobs ...Job) ([]Receipt, error) {
	for i, j := range jobs {
		if err := j.Validate(); err != nil {
			return nil, fmt.Errorf("job %d of %d: %w", i+1, len(jobs), err)
		}
		if j.Callback.URL == "" {
			continue
		}
		if name := store.CallbackQueue(c.store.Queue); store.CheckQueue(name) != nil {
			return nil, fmt.Errorf("job %d of %d: %w: callback: the name of the queue %q is too long for one", i+1, len(jobs), ErrInvalidJob, name)
		}
	}
	receipts := make([]Receipt, 0, len(jobs))
	for len(jobs) > 0 {
		n := min(len(jobs), offerBatch)
		batch, err := c.offer(ctx, newBatch(jobs[:n], idMemory))
		if err != nil {
			return receipts, fmt.Errorf("offering to queue %q: %w", c.store.Queue, err)
		}
		receipts = append(receipts, batch...)
		jobs = jobs[n:]
	}
	return receipts, nil
}

// idMemory is how long the ID of a job is known.
func idMemory(Job) time.Duration { return store.IDMemory }

// running counts what runs, if a concurrency limit counts for one of the jobs. What cannot
// be counted costs the receipts their estimates, and not the jobs.
func (c *Client) running(ctx context.Context, b *batch, policies *schedule.Policies, now int64) *forecast.Census {
	if !b.limitsRunning(policies) {
		return nil
	}
	return c.census.At(ctx, c.store, policies, now)
}

// offer offers one batch, again and again while Redis cannot be reached.
func (c *Client) offer(ctx context.Context, b *batch) ([]Receipt, error) {
	deadline := time.Now().Add(offerPatience)
	var before error // of the try before, which says more than that ctx has ended meanwhile
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		reply, policies, err := c.send(ctx, b)
		if err == nil && c.barrier != nil {
			err = c.barrier.wait(ctx, b.name)
		}
		if err == nil {
			// The batch has arrived: what is left of replaced jobs must not fail it.
			ids, spilled := replaced(reply)
			_ = c.store.Dropped(ctx, ids, spilled)
			return b.receipts(reply, policies, c.running(ctx, b, policies, reply.Now)), nil
		}
		if ctx.Err() != nil {
			return nil, errors.Join(err, before)
		}
		if !(unreachable(err) || errors.Is(err, ErrNotDurable) || errors.Is(err, errForgotten)) || time.Now().Add(wait).After(deadline) {
			return nil, err
		}
		before = err
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-time.After(wait):
		}
	}
}

// newPolicies bounds how often a batch is sent again because the policies have changed.
const newPolicies = 10

// send sends a batch under the policies in force, which it returns.
func (c *Client) send(ctx context.Context, b *batch) (store.OfferReply, *schedule.Policies, error) {
	for range newPolicies {
		policies := c.policies.Known()
		invalid := b.check(policies)
		if invalid == nil {
			reply, err := c.sendUnder(ctx, b, policies)
			if err == nil && !policies.HoldAt(reply.Now) { // an override has ended: no reason to offer again
				_ = c.policies.Reload(ctx)
			}
			if !errors.Is(err, store.ErrStale) {
				return reply, policies, err
			}
		}
		if err := c.policies.Reload(ctx); err != nil {
			return store.OfferReply{}, nil, err
		}
		if invalid != nil && c.policies.Known().InForce() == policies.InForce() {
			return store.OfferReply{}, nil, invalid
		}
	}
	return store.OfferReply{}, nil, errors.New("the policies in force are missing in Redis, or change too often to be read; set them again")
}

// sendUnder sends a batch under the given policies. It fails with [store.ErrStale] if
// others are in force.
func (c *Client) sendUnder(ctx context.Context, b *batch, policies *schedule.Policies) (store.OfferReply, error) {
	if people := clocksOf(b.jobs); len(people) > 0 {
		if err := c.store.SetPeople(ctx, people, true); err != nil {
			return store.OfferReply{}, err
		}
	}
	o := b.offer(policies)
	if b.timed(policies) {
		view, err := c.store.Look(ctx, b.scopes(policies))
		if err != nil {
			return store.OfferReply{}, err
		}
		if view.Policies != policies.InForce() {
			return store.OfferReply{}, store.ErrStale
		}
		b.judge(&o, forecast.New(policies, view, nil))
	}
	if b.callsBack() {
		if err := c.store.CallsBack(ctx); err != nil {
			return store.OfferReply{}, err
		}
	}
	return c.store.Offer(ctx, o)
}

// unreachable tells a broken connection, which may heal, from an answer of Redis or the
// end of the caller's context.
func unreachable(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, redis.ErrPoolTimeout) || changing(err)
}

// changing tells the answers of a Redis that starts, or whose master or cluster is just
// being changed.
func changing(err error) bool {
	for _, answer := range []string{"LOADING ", "MASTERDOWN ", "READONLY ", "CLUSTERDOWN ", "TRYAGAIN ", "NOREPLICAS ", "MOVED ", "ASK "} {
		if strings.HasPrefix(err.Error(), answer) {
			return true
		}
	}
	return false
}

// receiptOf reads what became of a job.
func receiptOf(job Job, from store.OfferReceipt) Receipt {
	r := Receipt{ID: cmp.Or(job.ID, from.Stamp), Place: from.Place}
	switch from.Status {
	case store.StatusAccepted, store.StatusLater, store.StatusJoined:
		r.Status = Accepted
	case store.StatusReplaced:
		r.Status = Replaced
	case store.StatusDuplicate:
		r.Status = Duplicate
	default:
		r.Status, r.Reason, r.Rule = Dropped, Reason(from.Reason), from.Rule
	}
	return r
}
