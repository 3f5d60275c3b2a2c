package notify_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/notify"
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
		{"no message", `{"title":1}`, notify.Outcome{}, false, "notify: not a message: ", true},
		{"a newer version's", `{"title":"a","at":1}`, notify.Outcome{}, false, `notify: not a message: unknown field "at"`, false},
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
