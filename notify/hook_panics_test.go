package notify_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
	"github.com/waterclock/waterclock/queue"
)

// A hookScene is a handler whose app has one hook that calls slip: the first two calls panic.
type hookScene struct {
	provider string
	hook     string // as the log names it
	attempts int    // that fail of the first two messages; 0: the hook has no part in the delivery
	build    func(t *testing.T, slip func()) (notify.Sender, crowd, notify.HandlerConfig)
}

func hookScenes() map[string]hookScene {
	plain := func(provider string, set func(cfg *notify.HandlerConfig, c crowd, slip func())) func(*testing.T, func()) (notify.Sender, crowd, notify.HandlerConfig) {
		return func(t *testing.T, slip func()) (notify.Sender, crowd, notify.HandlerConfig) {
			c := openCrowd(t, provider)
			var cfg notify.HandlerConfig
			set(&cfg, c, slip)
			return c.sender, c, cfg
		}
	}
	return map[string]hookScene{
		"Sent": {provider: "webhook", hook: "HandlerConfig.Sent", build: plain("webhook", func(cfg *notify.HandlerConfig, _ crowd, slip func()) {
			cfg.Sent = func(context.Context, notify.Sent) { slip() }
		})},
		"Forget": {provider: "webhook", hook: "HandlerConfig.Forget", attempts: 2, build: plain("webhook", func(cfg *notify.HandlerConfig, c crowd, slip func()) {
			var n atomic.Int64
			c.host.Answer(func(notifytest.Received) *notifytest.Answer {
				if n.Add(1) <= 2 {
					return &notifytest.Answer{Status: 410}
				}
				return nil
			})
			cfg.Forget = func(context.Context, queue.Info, notify.Target, error) error { slip(); return nil }
		})},
		"Sender": {provider: "webhook", hook: "Sender.Send", attempts: 2, build: func(t *testing.T, slip func()) (notify.Sender, crowd, notify.HandlerConfig) {
			c := openCrowd(t, "webhook")
			return fullSender(func(ctx context.Context, m notify.Message, to notify.Target) notify.Outcome {
				slip()
				return c.sender.Send(ctx, m, to)
			}), c, notify.HandlerConfig{}
		}},
		"Secrets": {provider: "webhook", hook: "WebhookConfig.Secrets", attempts: 2, build: func(t *testing.T, slip func()) (notify.Sender, crowd, notify.HandlerConfig) {
			c := openCrowd(t, "webhook")
			w, err := notify.NewWebhook(notify.WebhookConfig{AllowPrivate: true, Wire: wire(c.host), Secrets: func(context.Context, notify.Target) ([]string, error) {
				slip()
				return nil, nil
			}})
			must(t, err)
			closeLater(t, c.host, w)
			return w, c, notify.HandlerConfig{}
		}},
		"Dial": {provider: "webhook", hook: "Wire.Dial", attempts: 2, build: func(t *testing.T, slip func()) (notify.Sender, crowd, notify.HandlerConfig) {
			c := openCrowd(t, "webhook")
			reach := wire(c.host)
			dial := reach.Dial
			reach.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				slip()
				return dial(ctx, network, address)
			}
			w, err := notify.NewWebhook(notify.WebhookConfig{AllowPrivate: true, Wire: reach})
			must(t, err)
			closeLater(t, c.host, w)
			return w, c, notify.HandlerConfig{}
		}},
		"Token": {provider: "fcm", hook: "FCMConfig.Token", build: func(t *testing.T, slip func()) (notify.Sender, crowd, notify.HandlerConfig) {
			c := openCrowd(t, "fcm")
			p, err := notifytest.NewFCM(notifytest.Options{})
			must(t, err)
			f, err := notify.NewFCM(notify.FCMConfig{Project: "school-push", Wire: wire(&p.Host), Token: func(context.Context) (string, time.Time, error) {
				slip()
				return "", time.Time{}, errors.New("unused")
			}})
			must(t, err)
			closeLater(t, &p.Host, f)
			var n atomic.Int64
			return fullSender(func(ctx context.Context, m notify.Message, to notify.Target) notify.Outcome {
				if n.Add(1) <= 2 {
					return f.Send(ctx, m, to)
				}
				return c.sender.Send(ctx, m, to)
			}), c, notify.HandlerConfig{}
		}},
	}
}

type fullSender func(ctx context.Context, m notify.Message, to notify.Target) notify.Outcome

func (f fullSender) Send(ctx context.Context, m notify.Message, to notify.Target) notify.Outcome {
	return f(ctx, m, to)
}

// A hook of the app's that panics costs its message at most an attempt. It is logged once, with
// the hook and the stack, and the next messages to the same endpoint do not notice.
func TestHooksThatPanic(t *testing.T) {
	t.Parallel()
	scenes := hookScenes()
	type panics struct {
		scene   string
		devices int
	}
	var all []panics
	for _, name := range slices.Sorted(maps.Keys(scenes)) {
		all = append(all, panics{name, 1}, panics{name, 2})
	}
	for _, p := range sample.Draw(t, all, 0, 3) {
		t.Run(fmt.Sprint(p.scene, " ", p.devices), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { scenes[p.scene].run(t, p.devices) })
		})
	}
}

func (scene hookScene) run(t *testing.T, devices int) {
	var calls atomic.Int64
	slipOfTheApp := func() {
		if calls.Add(1) <= 2 {
			panic("boom")
		}
	}
	sender, c, cfg := scene.build(t, slipOfTheApp)
	// Two places for each endpoint: two panics that keep theirs leave none.
	cfg.Shared, cfg.Concurrency = true, 16
	s := newSchool(t, sender, cfg, queue.Policy{})
	targets := []notify.Target{c.target(0)}
	if devices == 2 {
		targets = append(targets, c.target(1))
	}
	for i := range 4 {
		s.notify(fmt.Sprint("user-", i), notify.Message{Title: fmt.Sprint(i), Targets: targets})
		time.Sleep(time.Minute)
	}
	time.Sleep(20 * time.Minute)
	got := make(map[string]int)
	for _, r := range c.host.Received() {
		if r.Status/100 == 2 {
			got[r.Title]++
			if late := r.At.Sub(s.begin); (r.Title == "2" || r.Title == "3") && late > 4*time.Minute {
				t.Errorf("message %s arrived after %v", r.Title, late)
			}
		}
	}
	if got["2"] != devices || got["3"] != devices {
		t.Errorf("the messages that had nothing to do with it: arrived %v", got)
	}
	if st := s.stats(); st.Started > 12 || st.Failed > int64(scene.attempts) || s.unfinished() != 0 {
		t.Errorf("%+v", st)
	}
	log := s.logged()
	want := min(int(calls.Load()), 2)
	if n := strings.Count(log, "hook="+scene.hook+" panic=boom"); n != want || !strings.Contains(log, "hook_panics_test.go") {
		t.Errorf("logged %d times, want %d, with the stack:\n%s", n, want, log)
	}
}

// Messages at which a Sender panics say nothing about its provider.
func TestPanicsAreNoEvidence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := openCrowd(t, "fcm")
		s := newSchool(t, fullSender(func(ctx context.Context, m notify.Message, to notify.Target) notify.Outcome {
			if m.Title == "poison" {
				panic(m.Title)
			}
			return c.sender.Send(ctx, m, to)
		}), notify.HandlerConfig{Shared: true}, queue.Policy{})
		for i := range 40 {
			s.notify(fmt.Sprint("user-", i), notify.Message{Title: "poison", Targets: []notify.Target{c.target(i)}})
		}
		time.Sleep(time.Second)
		s.notify("last", notify.Message{Title: "good", Targets: []notify.Target{c.target(100)}})
		time.Sleep(time.Second)
		if delivered(c) != 1 || strings.Contains(s.logged(), "suspended") {
			t.Errorf("%d arrived\n%.2000s", delivered(c), s.logged())
		}
	})
}

// A Logger that panics costs its lines only.
func TestLoggerThatPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := openCrowd(t, "webhook")
		h, err := notify.NewHandler(c.sender, notify.HandlerConfig{Logger: slog.New(badLog{}).With("a", "b").WithGroup("c")})
		must(t, err)
		job, err := notify.NewJob("school", "user", notify.Message{Title: "a", Targets: []notify.Target{c.target(0), c.target(1)}})
		must(t, err)
		task, err := queue.NewTask(job)
		must(t, err)
		if err := h.ProcessTask(t.Context(), task); err != nil {
			t.Error(err)
		}
		if n := delivered(c); n != 2 {
			t.Errorf("%d arrived", n)
		}
	})
}

type badLog struct{}

func (badLog) Enabled(context.Context, slog.Level) bool  { return true }
func (badLog) Handle(context.Context, slog.Record) error { panic("the log is full") }
func (l badLog) WithAttrs([]slog.Attr) slog.Handler      { return l }
func (l badLog) WithGroup(string) slog.Handler           { return l }
