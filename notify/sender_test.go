package notify_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/queue"
)

// senderFunc is a sender that is a function.
type senderFunc func(m notify.Message) notify.Outcome

func (f senderFunc) Send(_ context.Context, m notify.Message, _ notify.Target) notify.Outcome {
	return f(m)
}

func TestHandler(t *testing.T) {
	cause := errors.New("the provider is away")
	tests := []struct {
		name, payload string
		outcome       notify.Outcome
		wantSent      bool
		wantErr       string
		wantSkip      bool
	}{
		{"done", `{"title":"a"}`, notify.Outcome{Action: notify.Done}, true, "", false},
		{"retry", `{"title":"a"}`, notify.Outcome{Action: notify.Retry, Err: cause}, true, "the provider is away", false},
		{"drop", `{"title":"a"}`, notify.Outcome{Action: notify.Drop, Err: cause}, true, "the provider is away: skip retry for the task", true},
		{"no cause", `{"title":"a"}`, notify.Outcome{Action: notify.Retry}, true, "notify: the sender gave no cause", false},
		{"nothing", `{"title":"a"}`, notify.Outcome{}, true, `notify: unknown action "": notify: the sender gave no cause`, false},
		{"no message", `{"at":1}`, notify.Outcome{}, false, "notify: not a message: ", true},
		{"expired", `{"title":"a","expires":"2001-01-01T00:00:00Z"}`, notify.Outcome{}, false, "notify: the message expired ", true},
	}
	for _, tt := range tests {
		sent := false
		handler := notify.Handler(senderFunc(func(m notify.Message) notify.Outcome {
			sent = m.Title == "a"
			return tt.outcome
		}))
		err := handler.ProcessTask(t.Context(), asynq.NewTask("push", []byte(tt.payload)))
		if fmt.Sprint(err) != tt.wantErr && (tt.wantErr == "" && err != nil || !strings.HasPrefix(fmt.Sprint(err), tt.wantErr)) {
			t.Errorf("%s: error %v, want %s", tt.name, err, tt.wantErr)
		}
		if sent != tt.wantSent || errors.Is(err, asynq.SkipRetry) != tt.wantSkip {
			t.Errorf("%s: sent %v, error %v", tt.name, sent, err)
		}
	}
}

func TestLogOutsideOfWorker(t *testing.T) {
	err := notify.Handler(notify.NewLog(io.Discard)).ProcessTask(t.Context(), asynq.NewTask("push", nil))
	if !errors.Is(err, asynq.SkipRetry) {
		t.Errorf("got %v", err)
	}
}

// The log sender takes any payload, and its times are those of the job.
func TestLogInWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		var log bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := newClient(t, client, "push").Enqueue(ctx, queue.Job{
			ID: "1", Tenant: "a b", User: "u", Type: "push", Payload: []byte(`{"at":1748607359}`),
			NotBefore: time.Now().Add(10 * time.Second),
		})
		if err != nil {
			t.Fatal(err)
		}
		worker, err := queue.NewWorker(client, queue.WorkerConfig{Queues: []string{"push"}})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if err := worker.Run(ctx, notify.Handler(notify.NewLog(&log))); err != nil {
			t.Fatal(err)
		}
		var line struct {
			ID, Tenant, User, Type string
			Slot                   time.Time
			Started                time.Time `json:"started_at"`
			Attempt                int
			Waited                 int `json:"waited_ms"`
		}
		if err := json.Unmarshal(log.Bytes(), &line); err != nil {
			t.Fatalf("%v in %s", err, log.Bytes())
		}
		if line.ID != "1" || line.Tenant != "a b" || line.Attempt != 1 || line.Started.Before(line.Slot) ||
			line.Slot.Sub(begin) < 9*time.Second || line.Waited < 9999 {
			t.Errorf("the line is %s", log.Bytes())
		}
	})
}
