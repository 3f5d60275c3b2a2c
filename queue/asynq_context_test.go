package queue_test

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
)

// A prober sees what is asked of a context.
type prober struct {
	context.Context
	asked any
}

func (p *prober) Value(key any) any { p.asked = key; return nil }

// asynq's own helpers find nothing in a handler's context, and Info has what they would say.
// There is no way to let them: what they look for has a key, and a value, of types that
// asynq keeps to itself, and a task's ResultWriter is made by asynq's server alone.
func TestAsynqKnowsItsOwnContextsOnly(t *testing.T) {
	t.Parallel()
	p := &prober{Context: t.Context()}
	asynq.GetTaskID(p)
	if path := reflect.TypeOf(p.asked).PkgPath(); !strings.Contains(path, "/internal/") {
		t.Errorf("asynq looks for a key of package %s: the helpers could work now", path)
	}
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		done := false
		runWorker(t, client, asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			done = true
			_, id := asynq.GetTaskID(ctx)
			_, retries := asynq.GetRetryCount(ctx)
			_, most := asynq.GetMaxRetry(ctx)
			_, name := asynq.GetQueueName(ctx)
			if id || retries || most || name || task.ResultWriter() != nil {
				t.Error("asynq's helpers work: FromContext says that they do not")
			}
			info, ok := queue.FromContext(ctx)
			if !ok || info.ID != "job-7" || info.Attempt != 1 || info.MaxAttempts != 4 || info.Queue != "push" {
				t.Errorf("%+v", info)
			}
			return nil
		}), queue.WorkerConfig{Inbox: true})
		task, err := queue.NewTask(queue.Job{ID: "job-7", Tenant: "school", User: "teacher", Type: "push", MaxAttempts: 4})
		must(t, err)
		producer := asynq.NewClientFromRedisClient(client)
		_, err = producer.Enqueue(task, asynq.Queue("push"))
		must(t, err)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if !done {
			t.Error("the task has not run")
		}
	})
}
