package notify_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
	"github.com/waterclock/waterclock/queue"
)

// A farProvider is a provider with targets, and a sender that reaches it over a wire.
type farProvider struct {
	host   *notifytest.Host
	target func(n int) notify.Target
	sender func(reach notify.Wire) notify.Sender
}

func farProviderOf(t *testing.T, rdb redis.UniversalClient, kind string) farProvider {
	type closes interface {
		notify.Sender
		io.Closer
	}
	opened := func(host *notifytest.Host, s closes, err error) notify.Sender {
		must(t, err)
		closeLater(t, host, s)
		return s
	}
	switch kind {
	case "apns":
		p, err := notifytest.NewAPNs(notifytest.Options{})
		must(t, err)
		return farProvider{&p.Host, func(n int) notify.Target { return notify.Target{Token: fmt.Sprintf("%064x", n+1)} }, func(reach notify.Wire) notify.Sender {
			s, err := notify.NewAPNs(notify.APNsConfig{Key: p.Key, KeyID: p.KeyID, TeamID: p.TeamID, Topic: p.Topic, Redis: rdb, Wire: reach})
			return opened(&p.Host, s, err)
		}}
	case "webpush":
		p, err := notifytest.NewWebPush(notifytest.Options{})
		must(t, err)
		return farProvider{&p.Host, func(n int) notify.Target {
			sub, err := p.Subscribe(fmt.Sprint("b", n))
			must(t, err)
			return notify.Target{Token: sub.Endpoint, P256dh: sub.P256dh, Auth: sub.Auth}
		}, func(reach notify.Wire) notify.Sender {
			s, err := notify.NewWebPush(notify.WebPushConfig{Key: p.Key, Subject: "mailto:push@school.example", Wire: reach})
			return opened(&p.Host, s, err)
		}}
	}
	p, err := notifytest.NewWebhook(notifytest.Options{})
	must(t, err)
	return farProvider{&p.Host, func(n int) notify.Target {
		return notify.Target{Token: p.URL + fmt.Sprint("/hooks/", n%10), Secret: p.Secret}
	}, func(reach notify.Wire) notify.Sender {
		s, err := notify.NewWebhook(notify.WebhookConfig{Redis: rdb, Wire: reach})
		return opened(&p.Host, s, err)
	}}
}

// Of two workers one reaches nobody. The other one sends what it cannot send; a few messages show it, and are not lost. When it
// reaches everybody again it takes its part.
func TestAWorkerWithoutAWayOut(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	for _, kind := range []string{"apns", "webpush", "webhook"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rdb := redistest.Mini(t)
				p := farProviderOf(t, rdb, kind)
				var tried [2]atomic.Int64
				var well atomic.Bool
				for i := range tried {
					reach := wire(p.host)
					if dial := reach.Dial; i == 1 {
						reach.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
							if well.Load() {
								return dial(ctx, network, address)
							}
							return nil, &net.OpError{Op: "dial", Err: syscall.ENETUNREACH}
						}
					}
					handler, err := notify.NewHandler(p.sender(reach), notify.HandlerConfig{Shared: true, Redis: rdb, Sent: func(context.Context, notify.Sent) { tried[i].Add(1) }})
					must(t, err)
					worker, err := queue.NewWorker(rdb, queue.WorkerConfig{Queues: []string{"push"}})
					must(t, err)
					ctx, stop := context.WithCancel(context.Background())
					done := make(chan error, 1)
					go func() { done <- worker.Run(ctx, handler) }()
					t.Cleanup(func() { stop(); must(t, <-done) })
				}
				p.host.Answer(func(notifytest.Received) *notifytest.Answer { return &notifytest.Answer{Delay: 200 * time.Millisecond} })
				client := newClient(t, rdb, "push")
				offered := make(map[string]time.Time)
				offer := func(n int) {
					title := fmt.Sprint(n)
					job, err := notify.NewJob("school", fmt.Sprint("u", n), notify.Message{Title: title, Targets: []notify.Target{p.target(n)}})
					must(t, err)
					offered[title] = time.Now()
					_, err = client.Enqueue(t.Context(), job)
					must(t, err)
					time.Sleep(20 * time.Millisecond)
				}
				for n := range 300 {
					offer(n)
				}
				time.Sleep(time.Minute)
				var waits []time.Duration
				for _, r := range p.host.Received() {
					if r.Status/100 == 2 && !offered[r.Title].IsZero() {
						waits = append(waits, r.At.Sub(offered[r.Title]))
					}
				}
				slices.Sort(waits)
				// Each of the first fifteen costs the message an attempt: a second, and at webhooks five.
				if n := len(waits); n != 300 || waits[n/2] > 100*time.Millisecond || waits[n-1] > 7*time.Second || tried[1].Load() > 30 {
					t.Errorf("%d of 300 delivered, after %v in the middle and %v at most; attempts %d and %d", n, waits[n/2], waits[max(0, n-1)], tried[0].Load(), tried[1].Load())
				}
				well.Store(true)
				time.Sleep(16 * time.Minute) // longer than it may be suspended
				before := tried[1].Load()
				for n := range 100 {
					offer(1000 + n)
				}
				time.Sleep(time.Minute)
				st, err := newInspector(t, rdb, "push").Stats(t.Context())
				must(t, err)
				if part := tried[1].Load() - before; part < 20 || st.Done != 400 || st.Dead != 0 {
					t.Errorf("it sent %d of 100 when it was well again; %+v", part, st.Counters)
				}
			})
		})
	}
}
