package runner

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
	"log/slog"
)

var cpuLine = regexp.MustCompile(`(?m)^used_cpu_(?:user|sys)_main_thread:([\d.]+)`)

func cost(c *redis.Client) (cpu float64, commands int) {
	for _, m := range cpuLine.FindAllStringSubmatch(c.Info(context.Background(), "cpu").Val(), -1) {
		f, _ := strconv.ParseFloat(m[1], 64)
		cpu += f * 1e6
	}
	for line := range strings.Lines(c.Info(context.Background(), "commandstats").Val()) {
		if _, after, found := strings.Cut(line, ":calls="); found {
			calls, _, _ := strings.Cut(after, ",")
			k, _ := strconv.Atoi(calls)
			commands += k
		}
	}
	return
}

func TestZZPerf(t *testing.T) {
	client := redistest.Start(t).Client(t)
	client.HSet(t.Context(), "wc:{q}:policies", "version", 1, "source", "x")
	client.HSet(t.Context(), "wc:{q}:meta", "policies", 1)
	sec := time.Second
	p := &schedule.Policies{Default: "p", Policies: map[string]schedule.Policy{"p": {
		Tenant: rules.Compile(0, rules.Rule{Kind: rules.Leak, Limit: 1000000, Period: sec}),
		User:   rules.Compile(5*time.Millisecond, rules.Rule{Kind: rules.Window, Limit: 1000, Period: sec}, rules.Rule{Kind: rules.Spacing, Limit: 1, Period: time.Microsecond}),
	}}}
	p.Policies["p"] = schedule.Policy{Tenant: p.Policies["p"].Tenant, User: rules.Compile(0, rules.Rule{Kind: rules.Window, Limit: 10, Period: sec}, rules.Rule{Kind: rules.Spacing, Limit: 1, Period: time.Microsecond})}
	s, _ := store.New(client, "q")
	const N = 40000
	c0, k0 := cost(client)
	b := time.Now()
	for i := 0; i < N; i += 100 {
		o := store.Offer{Batch: fmt.Sprint(i), Keep: time.Minute, Policies: 1}
		tn := map[int]int{}
		for k := i; k < i+100; k++ {
			tt := (k / 10) % 20
			if _, ok := tn[tt]; !ok {
				tn[tt] = len(o.Tenants)
				o.Tenants = append(o.Tenants, store.OfferTenant{Name: fmt.Sprint("tenant-", tt)})
			}
			e := envelope.Envelope{Cost: 1, MaxAttempts: envelope.DefaultAttempts, Priority: 1, Type: "push", Payload: strings.Repeat(".", 120)}
			u := fmt.Sprint("user-", k/10)
			o.Jobs = append(o.Jobs, store.OfferJob{Tenant: tn[tt], Lane: envelope.Lane{Tenant: fmt.Sprint("tenant-", tt), User: u, Priority: 1}, Body: e.Body()})
			if k%10 == 0 {
				o.Scopes = append(o.Scopes, envelope.UserScope(fmt.Sprint("tenant-", tt), u))
			}
		}
		if _, err := s.Offer(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	c1, k1 := cost(client)
	t.Logf("offer: %.1f us/job, %.1f commands, %.0f/s", (c1-c0)/N, float64(k1-k0)/N, N/time.Since(b).Seconds())
	var n atomic.Int64
	r := New(Config{
		Store: s, Worker: "w", Places: NewPlaces(100), Lease: 15 * time.Second, ShutdownTimeout: time.Second,
		Policies: func(string, int64) (*schedule.Policies, error) { return p, nil }, Handle: func(context.Context, Attempt) Outcome { n.Add(1); return Outcome{} }, Metrics: noMetrics{},
		Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	ctx, cancel := context.WithCancel(t.Context())
	b = time.Now()
	done := make(chan struct{})
	go func() { r.Run(ctx); close(done) }()
	for n.Load() < N && time.Since(b) < 30*time.Second {
		time.Sleep(time.Millisecond)
	}
	took := time.Since(b)
	time.Sleep(50 * time.Millisecond)
	c2, k2 := cost(client)
	t.Logf("drain: %d, %.1f us/job, %.1f commands, %.0f/s", n.Load(), (c2-c1)/N, float64(k2-k1)/N, N/took.Seconds())
	t.Log(client.Info(t.Context(), "commandstats").Val())
	cancel()
	<-done
}

func TestZZPaced(t *testing.T) {
	client := redistest.Start(t).Client(t)
	client.HSet(t.Context(), "wc:{q}:policies", "version", 1, "source", "x")
	client.HSet(t.Context(), "wc:{q}:meta", "policies", 1)
	sec := time.Second
	p := &schedule.Policies{Default: "p", Policies: map[string]schedule.Policy{"p": {
		Tenant: rules.Compile(0, rules.Rule{Kind: rules.Leak, Limit: 50, Period: sec}),
		User:   rules.Compile(5*time.Millisecond, rules.Rule{Kind: rules.Window, Limit: 20, Period: sec}, rules.Rule{Kind: rules.Spacing, Limit: 1, Period: 25 * time.Millisecond}),
	}}}
	s, _ := store.New(client, "q")
	var n, late atomic.Int64
	r := New(Config{
		Store: s, Worker: "w", Places: NewPlaces(100), Lease: 15 * time.Second, ShutdownTimeout: time.Second,
		Policies: func(string, int64) (*schedule.Policies, error) { return p, nil }, Handle: func(_ context.Context, a Attempt) Outcome {
			n.Add(1)
			if a.Started-a.Slot > 2000 {
				late.Add(1)
			}
			return Outcome{}
		}, Metrics: noMetrics{},
		Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { r.Run(ctx); close(done) }()
	time.Sleep(100 * time.Millisecond)
	c0, k0 := cost(client)
	const N = 6000
	b := time.Now()
	for i := range N {
		o := store.Offer{Batch: fmt.Sprint(i), Keep: time.Minute, Policies: 1, Tenants: []store.OfferTenant{{Name: fmt.Sprint("tenant-", i%50)}}}
		u := fmt.Sprint("user-", (i/50)%40)
		e := envelope.Envelope{Cost: 1, MaxAttempts: envelope.DefaultAttempts, Priority: 1, Type: "push", Payload: strings.Repeat(".", 120)}
		l := envelope.Lane{Tenant: fmt.Sprint("tenant-", i%50), User: u, Priority: 1}
		o.Jobs = append(o.Jobs, store.OfferJob{Lane: l, Body: e.Body()})
		o.Scopes = append(o.Scopes, envelope.UserScope(l.Tenant, u), envelope.TenantScope(l.Tenant))
		go s.Offer(t.Context(), o)
		if d := time.Duration(i)*time.Second/2000 - time.Since(b); d > 0 {
			time.Sleep(d)
		}
	}
	for n.Load() < N && time.Since(b) < 30*time.Second {
		time.Sleep(time.Millisecond)
	}
	c1, k1 := cost(client)
	t.Logf("paced: %d, %.1f us/job, %.1f commands, late %d, took %v", n.Load(), (c1-c0)/N, float64(k1-k0)/N, late.Load(), time.Since(b))
	t.Log(client.Info(t.Context(), "commandstats").Val())
	cancel()
	<-done
}
