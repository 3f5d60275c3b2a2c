package queue_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/inprocess"
	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// A road is a way to Redis that takes time, and may be closed for a while.
type road struct {
	there, back time.Duration
	mu          sync.Mutex
	closed      chan struct{} // closed when it is open again; nil while it is
}

// close closes the road until the returned function is called.
func (r *road) close() (open func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	again := make(chan struct{})
	r.closed = again
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.closed = nil
		close(again)
	}
}

func (r *road) travel(d time.Duration) {
	r.mu.Lock()
	closed := r.closed
	r.mu.Unlock()
	if closed != nil {
		<-closed
	}
	time.Sleep(d)
}

func (r *road) client(t *testing.T, server *miniredis.Miniredis) *redis.Client {
	client := redis.NewClient(inprocess.Options(func() (net.Conn, error) {
		conn, err := inprocess.Dial(server)
		if err != nil {
			return nil, err
		}
		return r.connect(conn), nil
	}))
	t.Cleanup(func() { client.Close() })
	return client
}

// connect puts the road in front of a connection to the server, which is read at once: the
// server does not wait for those who are far away.
func (r *road) connect(server net.Conn) net.Conn {
	type parcel struct {
		bytes []byte
		due   time.Time
	}
	near, far := net.Pipe()
	parcels := make(chan parcel, 10_000)
	go func() {
		defer close(parcels)
		for {
			b := make([]byte, 32<<10)
			n, err := server.Read(b)
			if err != nil {
				return
			}
			parcels <- parcel{b[:n], time.Now().Add(r.back)}
		}
	}()
	go func() {
		defer far.Close()
		for p := range parcels {
			r.travel(time.Until(p.due))
			if _, err := far.Write(p.bytes); err != nil {
				server.Close()
			}
		}
	}()
	return roadConn{near, server, r}
}

// A roadConn is a connection over a road.
type roadConn struct {
	net.Conn // what has come over it
	server   net.Conn
	r        *road
}

func (c roadConn) Write(b []byte) (int, error) {
	c.r.travel(c.r.there)
	return c.server.Write(b)
}

func (c roadConn) Close() error {
	c.server.Close()
	return c.Conn.Close()
}

// A stopwatch is a handler that judges starts by the clock on the wall, and by what the
// worker believes.
type stopwatch struct {
	mu            sync.Mutex
	truth, belief []throttle.Event
	from          map[string]int // how many were started by whom
}

func (w *stopwatch) by(name string) asynq.HandlerFunc {
	return func(ctx context.Context, _ *asynq.Task) error {
		now := time.Now()
		info, _ := queue.FromContext(ctx)
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.from == nil {
			w.from = make(map[string]int)
		}
		w.from[name]++
		subject := info.Tenant + "/" + info.User
		w.truth = append(w.truth, throttle.Event{Subject: subject, At: now})
		w.belief = append(w.belief, throttle.Event{Subject: subject, At: info.Started})
		return nil
	}
}

// slow lets a handler keep its place for a while.
func slow(next asynq.Handler, d time.Duration) asynq.HandlerFunc {
	return func(ctx context.Context, task *asynq.Task) error {
		defer time.Sleep(d)
		return next.ProcessTask(ctx, task)
	}
}

// judge reports the violations that either clock shows.
func (w *stopwatch) judge(t *testing.T, starts int, rules ...throttle.Rule) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.truth) != starts {
		t.Errorf("%d starts, want %d", len(w.truth), starts)
	}
	for clock, events := range map[string][]throttle.Event{"the wall's clock": w.truth, "Info.Started": w.belief} {
		found := throttle.Verify(events, rules)
		for _, v := range found[:min(3, len(found))] {
			t.Errorf("by %s: %v (of %d)", clock, v, len(found))
		}
	}
}

// However far a worker is from Redis, in either direction, leader or not: what starts there
// keeps its distance from what starts elsewhere, by a clock that nobody believes in.
func TestFarWorkersKeepTheRules(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	rules := []throttle.Rule{throttle.Spacing(50 * ms)}
	for name, far := range sample.Cases(t, map[string]*road{
		"3 ms back": {back: 3 * ms}, "6 ms back": {back: 6 * ms}, "30 ms back": {back: 30 * ms}, "60 ms back": {back: 60 * ms},
		"6 ms there": {there: 6 * ms}, "30 ms there": {there: 30 * ms}, "60 ms there": {there: 60 * ms},
		"30 ms both ways": {there: 30 * ms, back: 30 * ms},
	}, 0, 3) {
		for _, leads := range []string{"near", "far"} {
			t.Run(name+", the leader "+leads, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server := newMini(t)
					near := redistest.MiniClient(t, server)
					clients := map[string]*redis.Client{"near": near, "far": far.client(t, server)}
					setPolicies(t, near, policies(queue.Policy{User: rules}))
					var watch stopwatch
					order := []string{"near", "far"}
					if leads == "far" {
						order = []string{"far", "near"}
					}
					for _, who := range order {
						runWorker(t, clients[who], slow(watch.by(who), 120*ms), queue.WorkerConfig{Concurrency: 1})
						time.Sleep(2 * time.Second) // it leads, or is known
					}
					const count = 200
					enqueue(t, near, jobs("school", "teacher", count)...)
					time.Sleep(90 * time.Second)
					watch.judge(t, count, rules...)
					if watch.from["near"] < 20 || watch.from["far"] < 20 {
						t.Errorf("started: %v; want some of each", watch.from)
					}
				})
			})
		}
	}
}

// Where some of the jobs run far away, a leak that drops still admits all that comes more slowly than it leaks. The slots of far
// workers lie ahead, and are no reason to drop what comes next.
func TestFarWorkersAreNoReasonToDrop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newMini(t)
		near := redistest.MiniClient(t, server)
		setPolicies(t, near, policies(queue.Policy{Tenant: []throttle.Rule{throttle.Leak(100, time.Second).OrDrop()}}))
		var watch stopwatch
		runWorker(t, near, slow(watch.by("near"), 30*time.Millisecond), queue.WorkerConfig{Concurrency: 1})
		time.Sleep(2 * time.Second) // it leads
		far := road{there: 3 * time.Millisecond, back: 3 * time.Millisecond}
		runWorker(t, far.client(t, server), slow(watch.by("far"), 30*time.Millisecond), queue.WorkerConfig{Concurrency: 10})
		time.Sleep(4 * time.Second)
		const count = 300
		for i := range count {
			enqueue(t, near, jobs("school", fmt.Sprint("u", i), 1)...)
			time.Sleep(16 * time.Millisecond)
		}
		time.Sleep(time.Second)
		watch.judge(t, count)
		if watch.from["near"] < 20 || watch.from["far"] < 20 {
			t.Errorf("started: %v; want some of each", watch.from)
		}
	})
}

// Jobs whose worker is held up around the turn of a minute start late, and count where
// they start: also for a rule that counts by the calendar.
func TestLateStartsKeepTheCalendar(t *testing.T) {
	t.Parallel()
	rule := throttle.FixedWindow(10, time.Minute)
	for _, before := range sample.Draw(t, []time.Duration{-2 * time.Millisecond, 2 * time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond}, 0, 2) {
		t.Run(fmt.Sprint("held up ", before, " before"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newMini(t)
				client := redistest.MiniClient(t, server)
				setPolicies(t, client, policies(queue.Policy{User: []throttle.Rule{rule}}))
				var watch stopwatch
				var way road
				runWorker(t, way.client(t, server), watch.by("held"), queue.WorkerConfig{})
				time.Sleep(2 * time.Second)
				runWorker(t, client, watch.by("free"), queue.WorkerConfig{})
				time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute - before - 3*time.Millisecond)))
				enqueue(t, client, jobs("school", "teacher", 30)...)
				time.Sleep(3 * time.Millisecond)
				open := way.close()
				time.Sleep(3 * time.Second)
				open()
				time.Sleep(5 * time.Minute)
				watch.judge(t, 30, rule)
			})
		})
	}
}

// Policies that Redis has lost are not the same as none: nothing starts, and that is said,
// until they are set again.
func TestLostPoliciesLetNothingStart(t *testing.T) {
	t.Parallel()
	sample.Slow(t)
	for name, lose := range map[string]func(context.Context, redis.UniversalClient) error{
		"FLUSHALL": func(ctx context.Context, c redis.UniversalClient) error { return c.FlushAll(ctx).Err() },
		"the key is gone, and the leader with it": func(ctx context.Context, c redis.UniversalClient) error {
			return c.Del(ctx, "wc:{push}:policies").Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			onStages(t, func(t *testing.T, s stage) {
				hourly := policies(queue.Policy{User: []throttle.Rule{throttle.Window(1, time.Hour)}})
				setPolicies(t, s.client, queue.Policies{})
				setPolicies(t, s.client, hourly)
				var log redistest.Buffer
				var got recorder
				cfg := queue.WorkerConfig{Lease: time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))}
				stop := runWorker(t, s.client, &got, cfg)
				enqueue(t, s.client, named("first", "u"))
				s.eventually(t, "it has started", func() bool { return got.count() == 1 })
				second := runWorker(t, s.client, &got, cfg)
				s.eventually(t, "two have worked for a while", func() bool { return beaten(t, s.client) == 2 })
				must(t, lose(t.Context(), s.client))
				if name != "FLUSHALL" {
					stop()
				}
				client := newClient(t, s.client, "push")
				client.Enqueue(t.Context(), named("a", "new"), named("b", "new")) // may be refused
				s.eventually(t, "that is said", func() bool { return strings.Contains(log.String(), "the policies are gone from Redis") })
				if s.virtual {
					time.Sleep(time.Minute)
				}
				if got.count() != 1 {
					t.Errorf("%d starts without policies", got.count()-1)
				}
				setPolicies(t, s.client, hourly)
				enqueue(t, s.client, named("c", "new"), named("d", "new"), named("e", "other"))
				s.eventually(t, "both users' first have started", func() bool { return got.count() == 3 })
				if s.virtual {
					time.Sleep(time.Minute)
				}
				if got.count() != 3 {
					t.Errorf("%d starts, want 3", got.count())
				}
				second()
			})
		})
	}
}

// beaten returns how many workers have given two signs of life.
func beaten(t *testing.T, client redis.UniversalClient) (n int) {
	t.Helper()
	for _, worker := range client.ZRange(t.Context(), "wc:{push}:workers", 0, -1).Val() {
		if since := client.HGet(t.Context(), "wc:{push}:worker:"+worker, "since").Val(); since != "" && since != "0" {
			n++
		}
	}
	return n
}

// A slot that the last attempt gives back is there at once for the user's next job, and a
// refunded attempt that backs off leaves it to others.
func TestRefundsAreThereAtOnce(t *testing.T) {
	t.Parallel()
	for _, attempts := range []int{1, 5} {
		t.Run(fmt.Sprint("attempts ", attempts), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := redistest.Mini(t)
				setPolicies(t, client, policies(queue.Policy{User: []throttle.Rule{throttle.Window(1, time.Hour)}}))
				got := recorder{then: func(context.Context, queue.Info) error { return queue.RefundUser{Err: fmt.Errorf("unseen")} }}
				runWorker(t, client, &got, queue.WorkerConfig{RetryDelay: after(time.Minute)})
				for _, id := range []string{"a", "b", "c"} {
					enqueue(t, client, named(id, "u", func(j *queue.Job) { j.MaxAttempts = attempts }))
				}
				begin := time.Now()
				time.Sleep(30 * time.Second)
				if got.count() != 3 {
					t.Fatalf("%d starts, want 3", got.count())
				}
				for _, start := range got.all() {
					if late := start.Started.Sub(begin); late > 100*time.Millisecond {
						t.Errorf("%s started after %v", start.ID, late)
					}
				}
			})
		})
	}
}
