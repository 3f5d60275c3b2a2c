package queue_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/queue"
)

// A pause that a handler asks for is listed with its cause; a shorter one does not take the reason
// of a longer one, and is not given it.
func TestPausesOfHandlersHaveReasons(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		inspector := newInspector(t, s.client, "push")
		got := recorder{then: func(ctx context.Context, info queue.Info) error {
			switch info.User {
			case "ann":
				return queue.Pause{Scope: queue.ScopeUser, For: time.Hour, Cause: errors.New("429 Too Many Requests\n" + strings.Repeat("x", 1000))}
			case "bob":
				return queue.Pause{Scope: queue.ScopeUser, For: time.Hour}
			}
			err := inspector.As(queue.Note{Author: "eve", Reason: "maintenance"}).Pause(ctx, queue.Pause{Scope: queue.ScopeTenant, Tenant: info.Tenant, Until: time.Now().Add(2 * time.Hour)})
			return queue.RefundUser{Err: queue.Pause{Scope: queue.ScopeTenant, For: time.Minute, Cause: errors.Join(err, errors.New("503"))}}
		}}
		runWorker(t, s.client, &got, queue.WorkerConfig{})
		other := named("", "cid")
		other.Tenant = "works"
		enqueue(t, s.client, named("", "ann"), named("", "bob"), other)
		var all []queue.Pause
		s.eventually(t, "all have asked for a pause", func() bool {
			var err error
			all, err = inspector.Pauses(t.Context())
			must(t, err)
			return len(all) == 3 && stats(t, s.client).Running == 0
		})
		reasons := make(map[string]queue.Note)
		for _, p := range all {
			reasons[p.Tenant+" "+p.User] = p.Note
		}
		if n := reasons["school ann"]; n.Author != "" || !strings.HasPrefix(n.Reason, "429 Too Many Requests\nxxx") || len(n.Reason) > 310 {
			t.Errorf("%+v, want the cause, cut", n)
		}
		if n := reasons["school bob"]; n != (queue.Note{}) {
			t.Errorf("%+v, want none", n)
		}
		if n := reasons["works "]; n != (queue.Note{Author: "eve", Reason: "maintenance"}) {
			t.Errorf("%+v, want that of the longer pause", n)
		}
	})
}
