package notify_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
	"github.com/waterclock/waterclock/queue"
)

// A fleet is workers that send to one APNs. Some have no way to it while the network is down.
type fleet struct {
	*school
	apple *notifytest.APNs
	down  atomic.Bool
}

func newFleet(t *testing.T, affected ...bool) *fleet {
	t.Helper()
	p, err := notifytest.NewAPNs(notifytest.Options{})
	must(t, err)
	p.Answer(func(notifytest.Received) *notifytest.Answer { return &notifytest.Answer{Delay: 200 * time.Millisecond} })
	f := &fleet{school: &school{t: t, rdb: redistest.Mini(t), begin: time.Now()}, apple: p}
	f.down.Store(true)
	for _, affected := range affected {
		w := wire(&p.Host)
		w.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if affected && f.down.Load() {
				return nil, &net.OpError{Op: "dial", Err: syscall.ENETUNREACH}
			}
			return p.Dial(ctx, network, address)
		}
		s, err := notify.NewAPNs(notify.APNsConfig{Key: p.Key, KeyID: p.KeyID, TeamID: p.TeamID, Topic: p.Topic, Redis: f.rdb, Wire: w})
		must(t, err)
		closeLater(t, &p.Host, s)
		handler, err := notify.NewHandler(s, notify.HandlerConfig{Shared: true, Redis: f.rdb, Logger: slog.New(slog.NewTextHandler(f.school, nil))})
		must(t, err)
		worker, err := queue.NewWorker(f.rdb, queue.WorkerConfig{Queues: []string{"push"}})
		must(t, err)
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- worker.Run(ctx, handler) }()
		t.Cleanup(func() { stop(); must(t, <-done) })
		time.Sleep(time.Second) // the first one leads
	}
	return f
}

// send offers so many messages, and returns how long after its offer each arrived.
func (f *fleet) push(messages int, gap time.Duration) (waits func() []time.Duration) {
	offered := make(map[string]time.Time)
	for n := range messages {
		title := fmt.Sprint(n)
		offered[title] = time.Now()
		f.notify(fmt.Sprint("user-", n), notify.Message{Title: title, Targets: []notify.Target{{Token: fmt.Sprintf("%064x", n+1)}}})
		time.Sleep(gap)
	}
	return func() (waits []time.Duration) {
		for _, r := range f.apple.Received() {
			waits = append(waits, r.At.Sub(offered[r.Title]))
		}
		slices.Sort(waits)
		return waits
	}
}

// One of two workers does not reach the provider: the other one gets most messages at once, and
// the rest soon, whichever leads.
func TestWorkerWithoutNetwork(t *testing.T) {
	for name, leads := range map[string]bool{"it leads": true, "the other leads": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const messages = 600
				f := newFleet(t, leads, !leads)
				arrived := f.push(messages, 20*time.Millisecond)
				time.Sleep(3 * time.Minute)
				waits := arrived()
				if len(waits) != messages {
					t.Fatalf("%d arrived, want %d", len(waits), messages)
				}
				if most := waits[messages*9/10]; most > 2*time.Second {
					t.Errorf("nine tenths arrived within %v", most)
				}
				if st := f.stats(); st.Dead != 0 || st.Started > messages*5/4 {
					t.Errorf("%d dead, %d starts", st.Dead, st.Started)
				}
			})
		})
	}
}

// While no worker reaches the provider, few jobs are started in vain, however many wait.
func TestNoWorkerHasNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const messages, outage = 300, 10 * time.Minute
		f := newFleet(t, true, true)
		arrived := f.push(messages, 20*time.Millisecond)
		time.Sleep(outage)
		// Each message once in each of the suspensions of 10, 20, 40 … seconds, six of them; beside
		// these, messages for half of the hundred places of each worker, each for half a minute.
		if st, most := f.stats(), 7*messages+100*int(outage/(30*time.Second)); st.Dead != 0 || int(st.Started) > most {
			t.Errorf("%d dead, %d starts, want at most %d", st.Dead, st.Started, most)
		}
		f.down.Store(false)
		time.Sleep(30 * time.Minute)
		if got := len(arrived()); got != messages {
			t.Errorf("%d arrived, want %d", got, messages)
		}
	})
}
