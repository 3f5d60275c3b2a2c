package queue

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/queue/internal/ctxkey"
)

// Forward returns a handler that releases each job, at its slot, into an asynq queue, where an
// existing fleet of asynq servers runs it. The task has the headers of [Headers] with the job's
// tenant and user, if these are UTF-8, and the job's attempts, Timeout and FinishBy as its
// MaxRetry, Timeout and Deadline. The options are for every task, and take precedence over these.
// Retries in the fleet are under no limit of the queue.
//
// The task's ID is "queue:ID:offer:digest": the waterclock queue, the job's ID, the instant of
// its offer in hexadecimal microseconds, and a digest of the job. If a worker dies after the
// hand-over, the job is handed over again, and asynq refuses the second task because it has the
// same ID.
//
// The asynq queue must not be one whose inbox the worker itself opens: it would take each task
// back into a lane, without end. [Worker.Run] refuses such a handler; where it is behind another
// one, such as a mux, its jobs are dead and their error says why.
func Forward(c *asynq.Client, queue string, opts ...asynq.Option) asynq.Handler {
	return &forwarder{client: c, queue: queue, opts: opts}
}

// A forwarder is the handler that Forward returns.
type forwarder struct {
	client *asynq.Client
	queue  string
	opts   []asynq.Option
}

// ProcessTask releases one job.
func (f *forwarder) ProcessTask(ctx context.Context, t *asynq.Task) error {
	info, ok := FromContext(ctx)
	if !ok {
		return errors.New("queue: Forward runs only as the handler of a Worker")
	}
	inboxes, _ := ctx.Value(ctxkey.Inboxes{}).([]string)
	if err := f.check(inboxes); err != nil {
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	headers := maps.Clone(t.Headers())
	if headers == nil {
		headers = make(map[string]string)
	}
	for name, value := range Headers(info.Tenant, info.User) {
		if utf8.ValidString(value) { // an asynq task carries no other text
			headers[name] = value
		}
	}
	task := asynq.NewTaskWithHeaders(t.Type(), t.Payload(), headers, boundsOf(info)...)
	all := append(f.opts[:len(f.opts):len(f.opts)], asynq.Queue(f.queue), asynq.TaskID(forwardedID(info, t)))
	_, err := f.client.EnqueueContext(ctx, task, all...)
	if err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) {
		return fmt.Errorf("forwarding to asynq queue %q: %w", f.queue, err)
	}
	return nil
}

// check returns an error if a worker with these inboxes would take the released tasks back.
func (f *forwarder) check(inboxes []string) error {
	if !slices.Contains(inboxes, f.queue) {
		return nil
	}
	return fmt.Errorf("%w: Forward releases jobs into the asynq queue %q, whose inbox this worker opens: they would come back "+
		"without end; want another asynq queue, one that your asynq servers run, or Inbox: false", ErrInvalidArgument, f.queue)
}

// boundsOf returns what bounds a job, as options of a task. asynq counts whole seconds.
func boundsOf(info Info) []asynq.Option {
	options := []asynq.Option{asynq.MaxRetry(info.MaxAttempts - 1)}
	if info.Timeout > 0 {
		options = append(options, asynq.Timeout(max(time.Second, info.Timeout)))
	}
	if !info.FinishBy.IsZero() {
		options = append(options, asynq.Deadline(info.FinishBy))
	}
	return options
}

// forwardedID returns the ID of the task that a job becomes. No two jobs have the same,
// wherever they come from.
func forwardedID(info Info, t *asynq.Task) string {
	digest := sha256.New()
	for _, part := range []string{info.ID, info.Tenant, info.User, t.Type(), string(t.Payload())} {
		fmt.Fprintf(digest, "%d:%s", len(part), part)
	}
	return fmt.Sprintf("%s:%s:%x:%s", info.Queue, strings.ToValidUTF8(info.ID, "\uFFFD"), info.Offered.UnixMicro(), hex.EncodeToString(digest.Sum(nil)[:8]))
}
