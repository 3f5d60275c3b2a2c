package notify

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A request starts when the one before has its stream, and one that net/http sends again
// starts anew.
func TestGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const patience = time.Hour
		var g gate
		ctx, cancel := context.WithCancelCause(t.Context())
		request := func(ctx context.Context) *http.Request {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://a.example/", strings.NewReader("body"))
			must(t, err)
			return req
		}
		req := request(t.Context())
		turn := g.come(req, patience)
		first, err := turn.enter(req)
		must(t, err)
		var entered, left atomic.Bool
		go func() {
			req := request(t.Context())
			turn := g.come(req, patience)
			second, err := turn.enter(req)
			must(t, err)
			entered.Store(true)
			time.Sleep(time.Second)
			httptrace.ContextClientTrace(second.Context()).WroteHeaders()
			time.Sleep(time.Second)
			turn.leave()
			left.Store(true)
		}()
		third := make(chan error)
		time.AfterFunc(time.Millisecond, func() {
			req := request(ctx)
			turn := g.come(req, patience)
			defer turn.leave()
			_, err := turn.enter(req)
			third <- turn.reason(err)
		})
		time.Sleep(time.Minute)
		if entered.Load() {
			t.Error("the second request starts before the first has its stream")
		}
		cancel(errors.New("the job is another worker's"))
		if err := <-third; err != context.Canceled {
			t.Errorf("a request that is given up while it waits: %v", err)
		}
		httptrace.ContextClientTrace(first.Context()).WroteHeaders()
		synctest.Wait()
		if !entered.Load() {
			t.Error("the second request does not start when the first has its stream")
		}
		again := time.Now()
		if _, err := first.GetBody(); err != nil || time.Since(again) != time.Second {
			t.Errorf("sent again after %v, %v; want to start when the second has its stream", time.Since(again), err)
		}
		time.Sleep(2 * time.Second)
		turn.leave()
		if !left.Load() || len(g.hosts) != 0 {
			t.Errorf("hosts are left: %v", g.hosts)
		}
	})
}
