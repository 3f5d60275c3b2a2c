package runner

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/inprocess"
	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
	"github.com/waterclock/waterclock/queue/internal/worker"
	"github.com/waterclock/waterclock/throttle"
)

type (
	Config  = worker.Config
	Attempt = worker.Attempt
	Outcome = worker.Outcome
	Pause   = worker.Pause
)

// The leases of a leader beside others, and alone (package elect), and how many claims it takes back at a
// time (package leader).
const (
	leaderLease = 500 * time.Millisecond
	aloneLease  = time.Second
	reapBatch   = 100
)

// laneBroken is what package leader says of a job whose lane cannot hold it.
const laneBroken = "its lane, the index of that or the jobs under collapse keys hold something else: see waterclock doctor --repair"

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// A stage is a queue with workers, and the log of their handlers.
type stage struct {
	t        *testing.T
	server   *miniredis.Miniredis
	client   redis.UniversalClient // of the test
	policies *schedule.Policies
	lease    time.Duration
	streams  bool                                   // workers send their commits by one connection each
	handler  func(worker string, a Attempt) Outcome // instead of the usual one
	mu       sync.Mutex
	starts   []started
	done     map[string]int // payload → attempts that came to a result
	workers  []*actor
	offered  map[string]bool
	log      *slog.Logger // of the workers; nil for none
}

type started struct {
	worker, user, payload string
	at                    time.Time // by the machine's clock
	slot                  int64
	unseen                bool // the user saw nothing of it
}

type actor struct {
	*Runner
	wire *wire
	stop func()
}

var limits = struct{ tenant, user []throttle.Rule }{
	[]throttle.Rule{throttle.Leak(100, time.Second)},
	[]throttle.Rule{throttle.Window(5, time.Second), throttle.Spacing(50 * time.Millisecond)},
}

func newStage(t *testing.T, workers int) *stage {
	server := inprocess.New()
	s := &stage{t: t, server: server, lease: 3 * time.Second, done: map[string]int{}, offered: map[string]bool{}}
	grace := schedule.Grace * time.Microsecond
	s.policies = &schedule.Policies{Version: 1, Default: "p", Policies: map[string]schedule.Policy{"p": {
		Tenant: rules.Compile(grace, rules.Rule{Kind: rules.Leak, Limit: 100, Period: time.Second}),
		User: rules.Compile(grace, rules.Rule{Kind: rules.Window, Limit: 5, Period: time.Second},
			rules.Rule{Kind: rules.Spacing, Limit: 1, Period: 50 * time.Millisecond}),
	}}}
	s.client = newWire(server).client(t)
	s.client.HSet(t.Context(), "wc:{q}:policies", "version", 1, "source", "x")
	s.client.HSet(t.Context(), "wc:{q}:meta", "policies", 1)
	s.hire(workers)
	return s
}

func (s *stage) join(name string) *actor { return s.joinWith(name, 50) }

// joinWith lets a worker with so many places join.
func (s *stage) joinWith(name string, places int) *actor {
	w := newWire(s.server)
	w.streams = s.streams
	client := w.client(s.t)
	st, err := store.New(client, "q")
	if err != nil {
		s.t.Fatal(err)
	}
	dedicated, done := store.Dedicated(client, 1)
	st = st.Dedicating(dedicated)
	a := &actor{wire: w}
	a.Runner = New(Config{
		Store: st, Name: name, Places: worker.NewPlaces(places), Lease: s.lease, ShutdownTimeout: time.Second,
		Policies: func(string, int64, int64) (*schedule.Policies, error) { return s.policies, nil },
		Handle:   func(ctx context.Context, at Attempt) Outcome { return s.handle(ctx, name, at) },
		Log:      cmp.Or(s.log, slog.New(slog.DiscardHandler)),
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.Run(ctx)
		done()
		client.Close()
	}()
	a.stop = sync.OnceFunc(func() { cancel(); <-ended })
	s.workers = append(s.workers, a)
	return a
}

// handle notes the start. One in seven attempts fails, one in eleven has gone unseen, one
// in thirteen pauses its user.
func (s *stage) handle(ctx context.Context, worker string, a Attempt) Outcome {
	s.mu.Lock()
	n := len(s.starts) + 1
	s.starts = append(s.starts, started{worker, a.Lane.User, a.Job.Payload, time.Now(), a.Slot, n%14 == 0 || n%11 == 0})
	s.mu.Unlock()
	if s.handler != nil {
		return s.handler(worker, a)
	}
	select {
	case <-time.After(10 * time.Millisecond):
	case <-ctx.Done():
		return Outcome{Failed: true, Error: "cut"}
	}
	switch {
	case n%7 == 0:
		return Outcome{Failed: true, Error: "no", Delay: 30 * time.Millisecond, Refund: n%2 == 0 || n%11 == 0}
	case n%13 == 0:
		return Outcome{Refund: n%11 == 0, Pause: &Pause{Scope: envelope.UserScope(a.Lane.Tenant, a.Lane.User), Until: a.Clock() + 100_000}}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done[a.Job.Payload]++
	return Outcome{Refund: n%11 == 0}
}

// leader returns the worker that leads by Redis's word.
func (s *stage) leader() *actor {
	token := s.server.HGet("wc:{q}:meta", "leader")
	for _, w := range s.workers {
		if _, name, _ := strings.Cut(token, ":"); name == w.worker.Name {
			return w
		}
	}
	return nil
}

// flow offers jobs of many users for a time, ten every 100 ms.
func (s *stage) flow(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		for range 3 {
			user := fmt.Sprint("u", len(s.offered)%29)
			n := 1 + len(s.offered)%3
			s.offer(user, n)
		}
	}
}

func (s *stage) offer(user string, n int) {
	st, _ := store.New(s.client, "q")
	o := store.Offer{Batch: fmt.Sprint(time.Now().UnixNano(), user), Keep: time.Minute, Policies: 1, Tenants: []store.OfferTenant{{Name: "t"}}}
	for i := range n {
		e := envelope.Envelope{Cost: 1, MaxAttempts: 100, Priority: envelope.Normal, Type: "x", Payload: fmt.Sprint(user, i) + fmt.Sprint(time.Now().UnixNano())}
		s.offered[e.Payload] = true
		o.Jobs = append(o.Jobs, store.OfferJob{Lane: envelope.Lane{Tenant: "t", User: user, Priority: 1}, Body: e.Body()})
	}
	if _, err := st.Offer(s.t.Context(), o); err != nil {
		s.t.Error(err)
	}
}

// drain waits until all is done, and ends the workers.
func (s *stage) drain() {
	for range 300 {
		time.Sleep(200 * time.Millisecond)
		s.mu.Lock()
		n := len(s.done)
		s.mu.Unlock()
		if n == len(s.offered) {
			break
		}
	}
	time.Sleep(2 * time.Second)
	for payload := range s.offered {
		if s.done[payload] == 0 {
			s.t.Errorf("%s was not done; Redis holds\n%s", payload, s.server.Dump())
		}
	}
	for _, w := range s.workers {
		w.wire.cut(false)
		w.stop()
	}
	s.client.Close()
	s.server.Close()
	time.Sleep(20 * time.Second) // go-redis dials on for a while
}

// judge checks what the handlers saw: all is done, nothing twice but what ran where a
// worker was cut, and no rule broken by the machine's clock.
func (s *stage) judge(cut ...string) {
	s.t.Helper()
	lost := 0
	for payload := range s.offered {
		if s.done[payload] == 0 {
			lost++
		}
	}
	if lost > 0 {
		s.t.Errorf("%d of %d jobs are lost", lost, len(s.offered))
	}
	runs := map[string]map[string]bool{}
	var users, tenants []throttle.Event
	for _, a := range s.starts {
		if runs[a.payload] == nil {
			runs[a.payload] = map[string]bool{}
		}
		runs[a.payload][a.worker] = true
		if !a.unseen {
			users = append(users, throttle.Event{Subject: a.user, At: a.at})
		}
		tenants = append(tenants, throttle.Event{Subject: "t", At: time.UnixMicro(a.slot)})
	}
	for payload, n := range s.done {
		if n > 1 && !slices.ContainsFunc(cut, func(name string) bool { return runs[payload][name] }) {
			s.t.Errorf("%s was done %d times, by %v", payload, n, slices.Collect(maps.Keys(runs[payload])))
		}
	}
	for i, v := range append(throttle.Verify(users, limits.user), throttle.Verify(tenants, limits.tenant)...) {
		if i < 5 {
			s.t.Error(v)
		}
	}
	s.t.Logf("%d jobs, %d starts", len(s.offered), len(s.starts))
}

// gap returns the longest time without starts after an instant, within so long.
func (s *stage) gap(from time.Time, within time.Duration) (longest time.Duration) {
	last := from
	for _, a := range s.starts {
		if a.at.Before(from) || a.at.After(from.Add(within)) {
			continue
		}
		longest = max(longest, a.at.Sub(last))
		last = a.at
	}
	return max(longest, from.Add(within).Sub(last))
}

// TestLeaders lets leaders come to grief while jobs are offered, fail, pause and are
// refunded.
func TestLeaders(t *testing.T) {
	t.Parallel()
	second := time.Second
	for name, test := range sample.Cases(t, map[string]struct {
		grief func(s *stage, leader *actor)
		most  time.Duration // the longest time without starts, beyond the usual; 0 for any
		cut   int           // what the leader ran may run twice, or what any worker ran
	}{
		"killed":           {func(s *stage, l *actor) { l.wire.cut(true) }, second, 1},
		"stopped cleanly":  {func(s *stage, l *actor) { go l.stop() }, 50 * time.Millisecond, 0},
		"held up for 3 s":  {func(s *stage, l *actor) { goOn := l.wire.hold(); time.Sleep(3 * second); goOn() }, second, 1},
		"held up for 20 s": {func(s *stage, l *actor) { goOn := l.wire.hold(); time.Sleep(20 * second); goOn() }, second, 1},
		"cut off all the time": {func(s *stage, l *actor) {
			for range 20 {
				s.leader().wire.cut(false)
				time.Sleep(300 * time.Millisecond)
			}
		}, 0, 3},
		"deaf": {func(s *stage, l *actor) {
			for _, w := range s.workers {
				w.wire.mu.Lock()
				w.wire.deaf = 9
				w.wire.mu.Unlock()
			}
			time.Sleep(5 * second)
			for _, w := range s.workers {
				w.wire.mu.Lock()
				w.wire.deaf = 0
				w.wire.mu.Unlock()
			}
		}, 0, 0},
		"not the only one": {func(s *stage, l *actor) { // its lease ends, and another leads beside it
			s.server.HSet("wc:{q}:meta", "till", "0")
			for _, w := range s.workers {
				if w != l {
					w.elector.Lead()
					break
				}
			}
			time.Sleep(second)
		}, second, 0},
	}, 1, 3) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 3)
				time.Sleep(2 * second)
				var at time.Time
				var cut []string
				flowing := make(chan struct{})
				go func() { s.flow(8 * second); close(flowing) }()
				time.Sleep(3 * second)
				leader := s.leader()
				for _, w := range s.workers {
					if w == leader && test.cut > 0 || test.cut == len(s.workers) {
						cut = append(cut, w.worker.Name)
					}
				}
				at = time.Now()
				test.grief(s, leader)
				<-flowing
				s.drain()
				s.judge(cut...)
				usual, gap := s.gap(at.Add(-2*second), 2*second), s.gap(at, 3*second)
				t.Logf("no starts for %v, usually %v", gap, usual)
				if test.most > 0 && gap > usual+test.most {
					t.Error("that is too long")
				}
			})
		})
	}
}
