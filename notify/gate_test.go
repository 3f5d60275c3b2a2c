package notify

import (
	"context"
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
	synctest.Test(t, func(t *testing.T) {
		var g gate
		ctx, cancel := context.WithCancel(t.Context())
		request := func(ctx context.Context) *http.Request {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://a.example/", strings.NewReader("body"))
			must(t, err)
			return req
		}
		first, leave, err := g.enter(request(t.Context()))
		must(t, err)
		var entered, left atomic.Bool
		go func() {
			second, leave, err := g.enter(request(t.Context()))
			must(t, err)
			entered.Store(true)
			time.Sleep(time.Second)
			httptrace.ContextClientTrace(second.Context()).WroteHeaders()
			time.Sleep(time.Second)
			leave()
			left.Store(true)
		}()
		third := make(chan error)
		time.AfterFunc(time.Millisecond, func() {
			_, _, err := g.enter(request(ctx))
			third <- err
		})
		time.Sleep(time.Minute)
		if entered.Load() {
			t.Error("the second request starts before the first has its stream")
		}
		cancel()
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
		leave()
		if !left.Load() || len(g.hosts) != 0 {
			t.Errorf("hosts are left: %v", g.hosts)
		}
	})
}
