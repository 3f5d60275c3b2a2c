package queue

import (
	"context"
	"errors"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/queue/internal/ctxkey"
)

// WriteResult writes the result of a task where asynq keeps it, for [asynq.TaskInfo.Result] and asynq's tools. A handler
// calls it in place of the task's ResultWriter, which is nil in a [Worker]: it works in both, so that a handler is the same
// before and after it moves from an asynq server into a worker. A second result takes the place of the first.
//
// In a worker the result is kept with the task that came through the inbox, as long as its [asynq.Retention] lasts. That
// begins when the inbox puts the task into its lane: it has to be longer than jobs wait. As in asynq, a task that is not
// retained has no place for a result; nothing is written then, and that is no error. So it is for jobs of a [Client].
//
// It fails if Redis does, or if ctx is not that of a handler.
func WriteResult(ctx context.Context, t *asynq.Task, result []byte) error {
	if w := t.ResultWriter(); w != nil {
		_, err := w.Write(result)
		return err
	}
	info, ok := ctx.Value(ctxkey.Info{}).(*Info)
	if !ok {
		return errors.New("queue: WriteResult wants the context and the task of a handler")
	}
	if info.store == nil {
		return nil
	}
	return info.store.WriteResult(ctx, info.ID, result)
}
