package queue

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Client offers jobs into the lanes of one queue. It is safe for concurrent use and
// needs no policies: those live in Redis.
type Client struct {
	queue   string
	scripts *scripts
}

const (
	offerBatch    = 100         // jobs per script call: Redis does nothing else meanwhile
	batchMemory   = time.Minute // how long a batch can be repeated without doubling it
	offerPatience = 30 * time.Second
)

// NewClient returns a client of the queue. The name becomes part of every key:
// [Client.Enqueue] refuses one with braces, colons or white space.
func NewClient(rdb redis.UniversalClient, queue string) *Client {
	return &Client{queue: queue, scripts: newScripts(rdb, queue)}
}

// Enqueue offers jobs and returns a receipt for each, in their order. A hundred jobs
// take one round trip. Every job is checked first: if one is invalid, none is offered
// and the error, wrapping [ErrInvalidJob], says which.
//
// When the connection breaks, Enqueue tries again for half a minute, or until ctx ends.
// A batch that had arrived already is not doubled by that. If it gives up, the error
// comes with the receipts of the batches before; the fate of the rest is unknown, and
// jobs with an ID of their own can safely be offered again.
func (c *Client) Enqueue(ctx context.Context, jobs ...Job) ([]Receipt, error) {
	if err := checkQueue(c.queue); err != nil {
		return nil, err
	}
	for i, j := range jobs {
		if err := j.Validate(); err != nil {
			return nil, fmt.Errorf("job %d of %d: %w", i+1, len(jobs), err)
		}
	}
	receipts := make([]Receipt, 0, len(jobs))
	for len(jobs) > 0 {
		n := min(len(jobs), offerBatch)
		batch, err := c.offer(ctx, jobs[:n])
		if err != nil {
			return receipts, fmt.Errorf("offering to queue %q: %w", c.queue, err)
		}
		receipts = append(receipts, batch...)
		jobs = jobs[n:]
	}
	return receipts, nil
}

// offer offers one batch, again and again while Redis cannot be reached.
func (c *Client) offer(ctx context.Context, jobs []Job) ([]Receipt, error) {
	args := offerArgs(jobs)
	deadline := time.Now().Add(offerPatience)
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		reply, err := c.scripts.run(ctx, c.scripts.offer, args...).Text()
		if err == nil {
			return readReceipts(reply, jobs)
		}
		if !unreachable(err) || time.Now().Add(wait).After(deadline) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-time.After(wait):
		}
	}
}

// offerArgs returns the arguments of offer.lua.
func offerArgs(jobs []Job) []any {
	args := make([]any, 0, 2+4*len(jobs))
	args = append(args, rand.Text(), batchMemory.Milliseconds())
	for _, j := range jobs {
		args = append(args, escape(j.Tenant), escape(j.User), micros(j.NotBefore), seal(j))
	}
	return args
}

// micros is a time as the scripts know it; the zero time is 0.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(0, t.UnixMicro())
}

// readReceipts reads the reply of offer.lua to the jobs.
func readReceipts(reply string, jobs []Job) ([]Receipt, error) {
	lines := strings.Split(reply, "\n")
	if len(lines) != len(jobs) {
		return nil, fmt.Errorf("queue: %d receipts for %d jobs", len(lines), len(jobs))
	}
	receipts := make([]Receipt, len(lines))
	for i, line := range lines {
		words := strings.SplitN(line, " ", 6)
		if len(words) != 6 {
			return nil, fmt.Errorf("queue: malformed receipt %q", line)
		}
		place, _ := strconv.Atoi(words[2])
		start, _ := strconv.ParseInt(words[3], 10, 64)
		r := Receipt{ID: cmp.Or(jobs[i].ID, words[0]), Status: Status(words[1]), Place: place}
		if start > 0 {
			r.Start = time.UnixMicro(start)
		}
		if r.Status == Rejected {
			r.Reason = Reason(words[4])
			r.Rule = strings.TrimPrefix(words[5], "-")
		}
		receipts[i] = r
	}
	return receipts, nil
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
	for _, answer := range []string{"LOADING ", "MASTERDOWN ", "READONLY ", "CLUSTERDOWN ", "TRYAGAIN ", "NOREPLICAS "} {
		if strings.HasPrefix(err.Error(), answer) {
			return true
		}
	}
	return false
}
