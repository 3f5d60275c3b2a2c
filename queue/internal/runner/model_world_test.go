package runner

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/inprocess"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
	"github.com/waterclock/waterclock/queue/internal/worker"
)

// A world is a queue with workers in virtual time, to which random things happen, and a judge that
// keeps accounts of its own.
type world struct {
	*rand.Rand // of the acts alone: they are the same in each run of a seed
	t          *testing.T
	scene      scene
	name       string // how to play it again
	server     *miniredis.Miniredis
	client     redis.UniversalClient // of the test
	wire       *wire
	store      *store.Store
	tenants    int
	users      int
	big        bool // there are costs above 1
	limits     int  // by name, at most
	moving     bool // they come to count other things
	digests    bool // jobs have digest keys
	rooms      bool // users and limits by name have capacities

	offering chan struct{} // holds one while jobs are offered
	pausing  chan struct{} // holds one while an operator's pause is under way
	mu       sync.Mutex
	op       int
	log      []line
	wrong    []string
	hired    []*hired
	hires    int
	drawn    int           // jobs
	closed   bool          // no more trouble, all is to end
	offset   time.Duration // Redis's clock beside the machine's
	stepped  atomic.Bool   // it was set once
	sources  map[string]codex
	version  int64
	source   string
	before   governed // the policies that were in force before
	lost     governed // those that Redis has lost; the zero value if they were set again, or none were
	lostAt   time.Time
	judge    *judge
}

// A governed is a version of the policies.
type governed struct {
	source  string
	version int64
}

// A line says what happened to whom; to all if no tenant is named.
type line struct {
	at           time.Time
	op           int
	tenant, user string
	text         string
}

// A hired is a worker.
type hired struct {
	*actor
	name    string
	places  int
	running int
	left    atomic.Bool // it was told to stop, or is dead
	dead    bool        // its machine is off: nothing that it does counts
	held    bool        // it cannot reach Redis
	lost    bool        // it may have lost its claims
	traps   []*trap
	cancel  context.CancelFunc
}

// A trap is something that happens at a command of a worker.
type trap struct {
	what    string
	commits bool // only commits count
	after   int  // so many more go by
	do      func(h *hired, cmd redis.Cmder, do func() error) error
}

func newWorld(t *testing.T, seed uint64, round int) *world {
	w := &world{
		Rand: rand.New(rand.NewPCG(seed, uint64(round))), t: t, server: inprocess.New(), sources: map[string]codex{}, pausing: make(chan struct{}, 1), offering: make(chan struct{}, 1),
		name: fmt.Sprintf("%s=%d %s=%d", seedVariable, seed, worldVariable, round),
	}
	w.wire = newWire(w.server)
	w.client = w.wire.client(t)
	w.wire.intercept(func(_ redis.Cmder, do func() error) error { w.tick(); return do() })
	w.store, _ = store.New(w.client, "q")
	w.scene = scenes[round%len(scenes)]
	w.tenants, w.users, w.big = 1+w.IntN(4), 1+w.IntN(4), w.chance(4)
	if w.chance(6) { // an index has more lanes than are read at once
		w.tenants, w.users = 1+w.IntN(2), 100+w.IntN(100)
	}
	if !w.chance(3) {
		w.limits, w.moving = 1+w.IntN(3), w.chance(4)
	}
	w.rooms = w.chance(2)
	if w.digests = !w.chance(3); w.digests && w.chance(2) { // some have many members
		w.tenants, w.users = 1+w.IntN(2), 1+w.IntN(2)
	}
	w.judge = newJudge(w)
	w.govern(w.codex())
	for range 1 + w.IntN(3) {
		w.hire()
	}
	time.Sleep(2 * time.Second)
	w.judge.trouble(2*time.Second, "the beginning")
	return w
}

// tick sets Redis's clock, where it is not the machine's.
func (w *world) tick() {
	w.mu.Lock()
	offset := w.offset
	w.mu.Unlock()
	if w.stepped.Load() { // from the first step on: miniredis keeps the last time that it was given
		w.server.SetTime(time.Now().Add(offset))
	}
}

func (w *world) chance(n int) bool { return w.IntN(n) == 0 }

func (w *world) note(tenant, user, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteLocked(tenant, user, format, args...)
}

func (w *world) noteLocked(tenant, user, format string, args ...any) {
	w.log = append(w.log, line{time.Now(), w.op, tenant, user, fmt.Sprintf(format, args...)})
}

// fail notes a difference, with what concerned the tenant and the user lately. The first ones count:
// what comes after them may follow from them.
func (w *world) fail(tenant, user, format string, args ...any) {
	if len(w.wrong) >= 3 {
		return
	}
	text := fmt.Sprintf("%s operation %d (%s): %s\n", w.name, w.op, w.scene.name, fmt.Sprintf(format, args...))
	var about []string
	for i, l := range w.log {
		named := slices.ContainsFunc(args, func(a any) bool {
			t, ok := a.(*task)
			return ok && strings.Contains(l.text, t.name+" (")
		})
		near := i >= len(w.log)-10*logLines && (tenant == "" || l.tenant == "" || l.tenant == tenant && (l.user == "" || user == "" || l.user == user))
		if named || near {
			about = append(about, fmt.Sprintf("  %9.6f #%d %s/%s %s", float64(l.at.UnixMicro()-w.judge.begun)/1e6, l.op, l.tenant, l.user, l.text))
		}
	}
	if cut := len(about) - logLines; cut > 0 { // the jobs that are named keep their lines
		about = slices.DeleteFunc(about, func(l string) bool {
			if cut <= 0 || slices.ContainsFunc(args, func(a any) bool { t, ok := a.(*task); return ok && strings.Contains(l, t.name+" (") }) {
				return false
			}
			cut--
			return true
		})
	}
	w.wrong = append(w.wrong, text+strings.Join(about, "\n"))
}

// hire lets a worker come.
func (w *world) hire() *hired {
	wire := newWire(w.server)
	client := wire.client(w.t)
	st, err := store.New(client, "q")
	if err != nil {
		w.t.Fatal(err)
	}
	w.hires++
	h := &hired{actor: &actor{wire: wire}, name: fmt.Sprint("w", w.hires), places: oneOf(w, 1, 2, 5, 50)}
	if w.scene.contest {
		h.places = 1 + w.hires%2
	}
	wire.intercept(func(cmd redis.Cmder, do func() error) error { return w.command(h, cmd, do) })
	h.Runner = New(Config{
		Store: st, Name: h.name, Places: worker.NewPlaces(h.places), Lease: modelLease, ShutdownTimeout: time.Second,
		Policies: w.policies, Handle: func(ctx context.Context, a Attempt) Outcome { return w.handle(ctx, h, a) },
		Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.Run(ctx)
		client.Close()
	}()
	h.cancel = cancel
	h.stop = func() { cancel(); <-ended }
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hired = append(w.hired, h)
	w.noteLocked("", "", "worker %s comes with %d places", h.name, h.places)
	return h
}

// policies reads what the worker has found in Redis.
func (w *world) policies(source string, version, now int64) (*schedule.Policies, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, known := w.sources[source]
	if !known {
		return nil, errors.New("unknown policies")
	}
	return c.policies(version, now), nil
}

// command lets a command of a worker go by, unless a trap waits for it.
func (w *world) command(h *hired, cmd redis.Cmder, do func() error) error {
	w.tick()
	w.mu.Lock()
	if isCommit(cmd) {
		if source := w.server.HGet("wc:{q}:policies", "source"); source != w.source {
			w.inForce()
		}
		w.judge.lapse()
		w.judge.gives(cmd)
	}
	var sprung *trap
	for i, trap := range h.traps {
		if trap.commits && !isCommit(cmd) {
			continue
		}
		if trap.after--; trap.after < 0 {
			sprung = trap
			h.traps = append(h.traps[:i], h.traps[i+1:]...)
			break
		}
	}
	if sprung == nil || w.closed {
		w.mu.Unlock()
		err := do()
		if isCommit(cmd) { // it may have given a claim to a worker that is dead
			w.mu.Lock()
			defer w.mu.Unlock()
			w.judge.haunt()
		}
		return err
	}
	w.noteLocked("", "", "%s at %s: %s", sprung.what, h.name, cmd.Name())
	w.mu.Unlock()
	return sprung.do(h, cmd, do)
}

// reset is what a broken connection says.
func reset(cmd redis.Cmder) error {
	err := &net.OpError{Op: "read", Err: errors.New("connection reset")}
	cmd.SetErr(err)
	return err
}

// alive returns the workers that are there.
func (w *world) alive() (all []*hired) {
	for _, h := range w.hired {
		if !h.left.Load() {
			all = append(all, h)
		}
	}
	return all
}

// leading returns the worker that leads by Redis's word, if it is there.
func (w *world) leading() *hired {
	_, name, _ := strings.Cut(w.server.HGet("wc:{q}:meta", "leader"), ":")
	for _, h := range w.hired {
		if h.name == name && !h.left.Load() {
			return h
		}
	}
	return nil
}

// A fated is what becomes of an attempt: it depends on the seed, the job and the attempt alone.
type fated struct {
	lasts   time.Duration
	outcome Outcome
	pauses  string // whom it pauses: "queue", "tenant", "user", "limit", "other" or nobody
	sendsOn bool   // its worker can run no job for some time
	rests   time.Duration
}

func (w *world) fate(t *task, n int) (f fated) {
	sum := fnv.New64a()
	fmt.Fprint(sum, w.name, t.name, n)
	r := rand.New(rand.NewPCG(sum.Sum64(), 1))
	switch p := r.IntN(100); {
	case p < 30:
	case p < 80:
		f.lasts = time.Duration(r.IntN(20_000)) * time.Microsecond
	case p < 97:
		f.lasts = time.Duration(r.IntN(400)) * time.Millisecond
	default:
		f.lasts = time.Duration(r.IntN(6000)) * time.Millisecond
	}
	if w.scene.contest {
		f.lasts = w.scene.lasts
		return f
	}
	switch p := r.IntN(100); {
	case p < 12:
		f.outcome = Outcome{Failed: true, Error: "no", Delay: time.Duration(r.IntN(600)) * time.Millisecond, Yield: r.IntN(5) == 0, Dead: r.IntN(8) == 0}
		f.outcome.Refund = r.IntN(4) == 0
	case p < 18:
		f.outcome.Refund = true
	case p < 22:
		f.pauses, f.rests = []string{"user", "user", "tenant", "tenant", "queue", "limit", "limit", "other"}[r.IntN(8)], time.Duration(20+r.IntN(700))*time.Millisecond
		f.outcome.Refund = r.IntN(2) == 0
	case p < 25:
		f.sendsOn, f.rests = true, time.Duration(100+r.IntN(2000))*time.Millisecond
		f.lasts += time.Millisecond // the next slot of the job is another one
	}
	return f
}

// handle is the handler of all workers.
func (w *world) handle(ctx context.Context, h *hired, a Attempt) Outcome {
	w.mu.Lock()
	if source := w.server.HGet("wc:{q}:policies", "source"); source != w.source {
		w.inForce() // Redis has taken them in, and who sets them does not know yet
	}
	w.judge.lapse()
	at := w.judge.start(h, a)
	w.mu.Unlock()
	if at == nil {
		return Outcome{}
	}
	cut := false
	if at.fate.lasts > 0 {
		select {
		case <-time.After(at.fate.lasts):
		case <-ctx.Done():
			cut = true
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	o := at.fate.outcome
	if cut {
		o = Outcome{Failed: true, Error: "cut", Uncounted: h.left.Load()} // a worker that stops gives it back
	} else if at.fate.sendsOn {
		o = Outcome{SentOn: a.Clock() + at.fate.rests.Microseconds()}
	} else if at.fate.pauses != "" {
		o.Pause = &Pause{Scope: at.scopeOf(at.fate.pauses), Until: a.Clock() + at.fate.rests.Microseconds()}
	}
	w.judge.end(at, o)
	return o
}

// scopeOf returns a scope that counts the job: that of a limit by name, if there is one.
func (at *attempt) scopeOf(whose string) string {
	scopes := scopesOf(at.t.lane)
	switch whose {
	case "limit":
		return at.charges[len(at.charges)-1].scope
	case "other": // a limit that does not count the job
		return envelope.LimitScope + "nobody"
	case "user":
		return scopes[2]
	case "tenant":
		return scopes[1]
	}
	return scopes[0]
}

// govern puts other policies in force.
func (w *world) govern(c codex) {
	w.mu.Lock()
	source := fmt.Sprint("policies ", len(w.sources))
	w.sources[source] = c
	w.mu.Unlock()
	if _, err := w.store.SetPolicies(w.ctx(), store.NewPolicies{Source: source, Expected: -1}); err != nil {
		w.t.Error(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before = governed{w.source, w.version}
	w.inForce()
	w.noteLocked("", "", "policies: %v", c)
}

// inForce takes in which policies are in force by Redis's word.
func (w *world) inForce() {
	source := w.server.HGet("wc:{q}:policies", "source")
	if source != w.source {
		w.noteLocked("", "", "in force by Redis's word: %s", source)
	}
	w.source = source
	w.version, _ = strconv.ParseInt(w.server.HGet("wc:{q}:meta", "policies"), 10, 64)
	w.judge.govern(w.sources[source].at(time.Now().Add(w.offset).UnixMicro()))
}

func (w *world) ctx() context.Context { return context.Background() }

// redisNow is Redis's clock.
func (w *world) redisNow() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Add(w.offset).UnixMicro()
}

// end ends all workers.
func (w *world) end() {
	var all sync.WaitGroup
	for _, h := range w.hired {
		h.wire.cut(h.dead)
		all.Go(h.stop)
	}
	all.Wait()
	w.client.Close()
	w.server.Close()
	time.Sleep(20 * time.Second) // go-redis dials on for a while
}
