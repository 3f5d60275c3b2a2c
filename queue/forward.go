package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"
)

// Forward returns a handler that releases each job, at its slot, into an asynq queue,
// where an existing fleet of asynq servers runs it. The job's ID becomes the task's, so
// that asynq recognises a hand-over that is repeated. The options are for every task.
func Forward(c *asynq.Client, queue string, opts ...asynq.Option) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		info, ok := FromContext(ctx)
		if !ok {
			return errors.New("queue: Forward runs only as the handler of a Worker")
		}
		all := append(opts[:len(opts):len(opts)], asynq.Queue(queue), asynq.TaskID(info.ID))
		_, err := c.EnqueueContext(ctx, t, all...)
		if err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) {
			return fmt.Errorf("forwarding to asynq queue %q: %w", queue, err)
		}
		return nil
	})
}
