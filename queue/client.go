package queue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/waterclock/waterclock/queue/internal/store"
)

// A Client offers jobs into the lanes of one queue. It is safe for concurrent use. It reads the
// policies from Redis, and again when they change.
type Client struct {
	partitions *store.Partitions[*door]
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
	var durability Durability
	if len(config) > 1 {
		return nil, fmt.Errorf("%w: NewClient: %d configs; want at most one", ErrInvalidArgument, len(config))
	}
	for _, cfg := range config {
		if cfg.Durability.Replicas < 0 {
			return nil, fmt.Errorf("%w: ClientConfig.Durability.Replicas is %d; want 0 or more", ErrInvalidArgument, cfg.Durability.Replicas)
		}
		durability = cfg.Durability
	}
	return &Client{store.NewPartitions(s, func(s *store.Store) *door { return newDoor(s, durability) })}, nil
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
		if name := store.CallbackQueue(c.queue()); store.CheckQueue(name) != nil {
			return nil, fmt.Errorf("job %d of %d: %w: callback: the name of the queue %q is too long for one", i+1, len(jobs), ErrInvalidJob, name)
		}
	}
	receipts := make([]Receipt, 0, len(jobs))
	for len(jobs) > 0 {
		batch, err := c.enqueueSome(ctx, jobs)
		if err != nil {
			return receipts, fmt.Errorf("offering to queue %q: %w", c.queue(), err)
		}
		receipts = append(receipts, batch...)
		jobs = jobs[len(batch):]
	}
	return receipts, nil
}

func (c *Client) queue() string { return c.partitions.Root.Queue }

// enqueueSome offers the first of some jobs, a batch of them to each partition, and returns their receipts.
func (c *Client) enqueueSome(ctx context.Context, jobs []Job) ([]Receipt, error) {
	return settled(func() ([]Receipt, error) {
		all, err := c.all(ctx)
		if err != nil {
			return nil, err
		}
		some := jobs[:min(len(jobs), offerBatch*len(all))]
		if len(all) == 1 {
			return all[0].offer(ctx, newBatch(some, idMemory))
		}
		return divide(ctx, all, some)
	})
}

// settled does something again if the queue has just been divided.
func settled(do func() ([]Receipt, error)) (receipts []Receipt, err error) {
	for range 3 {
		if receipts, err = do(); !errors.Is(err, errDivided) {
			break
		}
	}
	return receipts, err
}

// offer offers a batch of jobs of one tenant.
func (c *Client) offer(ctx context.Context, b *batch) ([]Receipt, error) {
	return settled(func() ([]Receipt, error) {
		d, err := c.door(ctx, b.jobs[0].Tenant)
		if err != nil {
			return nil, err
		}
		return d.offer(ctx, b)
	})
}

// divide offers jobs to their partitions at once, and returns their receipts in the order of the jobs.
func divide(ctx context.Context, all []*door, jobs []Job) ([]Receipt, error) {
	places := make([][]int, len(all)) // of the jobs of each partition
	for i, j := range jobs {
		k := store.PartitionOf(j.Tenant, len(all))
		places[k] = append(places[k], i)
	}
	receipts := make([]Receipt, len(jobs))
	var group errgroup.Group // a partition that cannot be reached leaves the others alone
	for k, its := range places {
		group.Go(func() error {
			for some := range slices.Chunk(its, offerBatch) {
				batch := make([]Job, len(some))
				for n, i := range some {
					batch[n] = jobs[i]
				}
				known, err := all[k].offer(ctx, newBatch(batch, idMemory))
				if err != nil {
					return err
				}
				for n, i := range some {
					receipts[i] = known[n]
				}
			}
			return nil
		})
	}
	return receipts, group.Wait()
}

// all returns the doors of the partitions of the queue.
func (c *Client) all(ctx context.Context) (all []*door, err error) {
	err = patiently(ctx, func() (err error) {
		all, err = c.partitions.All(ctx)
		return err
	})
	return all, err
}

// door returns the door of the partition of a tenant.
func (c *Client) door(ctx context.Context, tenant string) (*door, error) {
	all, err := c.all(ctx)
	if err != nil {
		return nil, err
	}
	return all[store.PartitionOf(tenant, len(all))], nil
}

// patiently does something again and again while Redis cannot be reached, for half a minute or until ctx ends.
func patiently(ctx context.Context, do func() error) error {
	deadline := time.Now().Add(offerPatience)
	var before error // of the try before, which says more than that ctx has ended meanwhile
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := do()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return errors.Join(err, before)
		}
		if !(unreachable(err) || errors.Is(err, ErrNotDurable) || errors.Is(err, errForgotten) || errors.Is(err, errNotReady)) || time.Now().Add(wait).After(deadline) {
			return err
		}
		before = err
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(wait):
		}
	}
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
