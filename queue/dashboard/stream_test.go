package dashboard

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
)

// A slowClient reads nothing: what is written to it waits until its deadline.
type slowClient struct {
	header   http.Header
	mu       sync.Mutex
	status   int
	deadline time.Time
	writes   int
}

func (s *slowClient) Header() http.Header { return s.header }
func (s *slowClient) WriteHeader(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = status
}
func (s *slowClient) SetWriteDeadline(at time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = at
	return nil
}
func (s *slowClient) FlushError() error { return nil }
func (s *slowClient) Write(p []byte) (int, error) {
	s.mu.Lock()
	s.writes++
	refused, wait := s.status != 0, time.Until(s.deadline)
	s.mu.Unlock()
	if refused { // the short text of an error fits into any buffer
		return len(p), nil
	}
	time.Sleep(wait)
	return 0, os.ErrDeadlineExceeded
}

// A fastClient reads everything.
type fastClient struct {
	*httptest.ResponseRecorder
	mu   sync.Mutex
	news int
}

func (f *fastClient) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.news += strings.Count(string(p), "event: news")
	return len(p), nil
}

func (f *fastClient) FlushError() error { return nil }

func (f *fastClient) seen() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.news
}

func listenTo(d *Dashboard, w http.ResponseWriter, ctx context.Context) {
	d.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/dashboard/push/-/events", nil))
}

// Ten thousand clients that read nothing hurt nobody: a page that reads is told every second,
// the reader keeps its pace, and the slow ones are gone after some seconds.
func TestSlowClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := visit(t, redistest.Mini(t), "")
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if err := v.Dashboard.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		good := &fastClient{ResponseRecorder: httptest.NewRecorder()}
		all.Go(func() { listenTo(v.Dashboard, good, ctx) })
		synctest.Wait()
		slow := make([]*slowClient, 10_000)
		var hanging sync.WaitGroup
		for i := range slow {
			slow[i] = &slowClient{header: make(http.Header)}
			hanging.Go(func() { listenTo(v.Dashboard, slow[i], ctx) })
		}
		before := good.seen()
		time.Sleep(4*time.Second + time.Millisecond)
		if n := good.seen() - before; n < 3 || n > 5 {
			t.Errorf("the good client was told %d times in four seconds", n)
		}
		time.Sleep(2 * writeWithin)
		hanging.Wait()
		refused, dropped := 0, 0
		for _, s := range slow {
			if s.status == http.StatusServiceUnavailable {
				refused++
			} else if s.writes == 1 {
				dropped++
			}
		}
		if dropped != maxStreams-1 || refused != len(slow)-dropped {
			t.Errorf("%d of %d were refused and %d dropped", refused, len(slow), dropped)
		}
		another := &fastClient{ResponseRecorder: httptest.NewRecorder()} // there is room again
		all.Go(func() { listenTo(v.Dashboard, another, ctx) })
		time.Sleep(3 * time.Second)
		if another.seen() < 2 {
			t.Error("the slow ones still take all places")
		}
		cancel()
		all.Wait()
		if n := len(v.streams.pages); n != 0 {
			t.Errorf("%d pages still listen", n)
		}
	})
}

// Without Run nobody is told anything, and the browser is told not to ask again. A stream ends
// by itself after a while, and with Run.
func TestStreamsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := visit(t, redistest.Mini(t), "")
		w := httptest.NewRecorder()
		listenTo(v.Dashboard, w, t.Context())
		if w.Code != http.StatusNoContent {
			t.Errorf("without Run: %d", w.Code)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error)
		go func() { ran <- v.Dashboard.Run(ctx) }()
		synctest.Wait()
		begun := time.Now()
		good := &fastClient{ResponseRecorder: httptest.NewRecorder()}
		listenTo(v.Dashboard, good, t.Context())
		if d := time.Since(begun); d != streamLength || good.seen() < 500 {
			t.Errorf("a stream lasted %v and told %d times", d, good.seen())
		}
		ended := make(chan struct{})
		go func() {
			listenTo(v.Dashboard, good, t.Context())
			close(ended)
		}()
		time.Sleep(time.Second)
		cancel()
		if err := errors.Join(<-ran); err != nil {
			t.Error(err)
		}
		<-ended
	})
}
