package queue_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// An opening is a crowd of users with a job each, whose hours open at one instant, and a neighbour who has none.
type opening struct {
	hours     string        // whose rule they are: "user", "limit", or "" without hours: the leak begins at once
	ramp      time.Duration // of the leak
	perSecond int           // the leak of the crowd's tenant
	lanes     int           // users of the crowd
	each      time.Duration // from one job of the neighbour to the next
	before    time.Duration // how long the neighbour is alone
	offering  time.Duration // how long the jobs may take until they have their bounds
	closed    time.Duration // how long the neighbour is watched before the opening
	open      time.Duration // how long the opening is watched
}

// A run of an opening: what was seen of it, by the machine's clock.
type openingRun struct {
	opening
	opens time.Time

	mu        sync.Mutex
	starts    []time.Time // of the crowd
	neighbour []delay
}

type delay struct {
	offered time.Time
	took    time.Duration
}

// ProcessTask notes when it runs. The neighbour's jobs say when they were offered.
func (r *openingRun) ProcessTask(_ context.Context, task *asynq.Task) error {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := task.Payload(); len(p) == 8 {
		offered := time.Unix(0, int64(binary.LittleEndian.Uint64(p)))
		r.neighbour = append(r.neighbour, delay{offered, now.Sub(offered)})
		return nil
	}
	r.starts = append(r.starts, now)
	return nil
}

// Users of a tenant wait for one opening. None starts before, the tenant's leak holds and is used up, its ramp is a line, and a neighbour
// does not feel it.
func TestManyLanesOpenTogether(t *testing.T) {
	for name, o := range map[string]opening{"user": {hours: "user", ramp: time.Second}, "limit": {hours: "limit"}} {
		o.lanes, o.perSecond, o.each = 1000, 250, 20*time.Millisecond
		o.before, o.offering, o.closed, o.open = time.Second, time.Second, 2*time.Second, 2*time.Second
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, way := newMini(t), &road{there: time.Millisecond / 2, back: time.Millisecond / 2}
				o.play(t, openingStage{
					clock:  func(at time.Time) (opens time.Time) { return at },
					client: func() *redis.Client { return way.client(t, server) },
					judged: true,
				})
			})
		})
	}
}

// The same on a Redis, with a million users where every case is run: then a start also costs what it costs without hours. Otherwise how
// busy the machine is decides about rates and delays, and only the leak is judged.
func TestManyLanesOpenTogetherOnRedis(t *testing.T) {
	redistest.Slow(t)
	base := opening{
		lanes: 3000, perSecond: 500, each: 10 * time.Millisecond,
		before: time.Second / 2, offering: 3 * time.Second / 2, closed: time.Second / 2, open: 2 * time.Second,
	}
	scenes := []opening{{hours: "user", ramp: time.Second}, {hours: "limit"}}
	if sample.Whole() {
		base = opening{
			lanes: lanesOf(t, 1_000_000), perSecond: 2000, each: 5 * time.Millisecond,
			before: 15 * time.Second, offering: 5 * time.Second, closed: 15 * time.Second, open: 40 * time.Second,
		}
		base.offering += time.Duration(base.lanes) * 240 * time.Microsecond
		const ramp = 20 * time.Second
		scenes = []opening{{ramp: ramp}, {hours: "user", ramp: ramp}, {}, {hours: "limit"}}
	}
	calm := 0.0 // commands a start without hours
	for _, o := range scenes {
		o.lanes, o.perSecond, o.each, o.before, o.offering, o.closed, o.open = base.lanes, base.perSecond, base.each, base.before, base.offering, base.closed, base.open
		if o.hours == "" {
			o.offering, o.closed = 0, 0
			o.lanes = min(o.lanes, int(float64(o.perSecond)*(o.open.Seconds()+5)))
		}
		t.Run(fmt.Sprintf("hours %q ramp %v", o.hours, o.ramp), func(t *testing.T) {
			server, wall := redistest.StartWithClock(t, "--slowlog-log-slower-than", "1000", "--slowlog-max-len", "10000")
			cost := o.play(t, openingStage{
				server: server.Client(t),
				judged: sample.Whole(),
				clock: func(at time.Time) time.Time { // Redis's clock is set so that it is the hour of the opening then
					opens := time.Now().Add(o.before + o.offering + o.closed)
					wall.Step(at.Sub(opens))
					return opens
				},
				client: func() *redis.Client { return server.Client(t) },
			})
			switch {
			case o.hours == "":
				calm = cost
			case sample.Whole() && cost > 1.2*calm:
				t.Errorf("%.1f commands a start, %.1f without hours", cost, calm)
			}
		})
	}
}

// An openingStage is where an opening plays.
type openingStage struct {
	clock  func(at time.Time) (opens time.Time) // by the machine's clock, when Redis's shows that
	client func() *redis.Client
	server *redis.Client // asked for what it does; nil in virtual time
	judged bool          // nothing else decides about rates and delays
}

// play runs a scene, judges it, and returns how many commands of Redis a start costs.
func (o opening) play(t *testing.T, s openingStage) float64 {
	client := s.client()
	eight := time.Now().UTC().Truncate(24 * time.Hour).Add(32 * time.Hour)
	r := &openingRun{opening: o, opens: s.clock(eight)}
	began := r.opens.Add(-o.before - o.offering - o.closed)
	time.Sleep(time.Until(began))
	setPolicies(t, client, o.policies())
	memory, heap := usedMemory(t, s.server), heapInUse()
	stop := runWorker(t, s.client(), r, queue.WorkerConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	var neighbour sync.WaitGroup
	neighbour.Go(func() { r.offerNeighbour(t, ctx, s.client()) })
	defer func() { cancel(); neighbour.Wait() }()

	time.Sleep(time.Until(began.Add(o.before)))
	r.see(t, "alone", began.Add(o.before/5), time.Now())
	slowest(t, s.server)
	offered := time.Now()
	for from := 0; from < o.lanes; from += 1000 {
		batch := make([]queue.Job, min(1000, o.lanes-from))
		for i := range batch {
			batch[i] = queue.Job{Tenant: "crowd", User: fmt.Sprint("user-", from+i), Type: "push", Payload: []byte("good morning")}
		}
		enqueue(t, client, batch...)
	}
	t.Logf("%d jobs offered in %v", o.lanes, time.Since(offered).Round(time.Millisecond))
	r.see(t, "while they are offered", offered, time.Now())
	var closed time.Duration
	if o.hours == "" {
		r.opens = time.Now()
	} else {
		if o.hours == "user" {
			early := func() int64 {
				return client.ZCount(t.Context(), "wc:{push}:due:crowd", "-inf", fmt.Sprintf("(%d", eight.UnixMicro())).Val()
			}
			for early() > 0 && time.Until(r.opens) > o.closed {
				time.Sleep(50 * time.Millisecond)
			}
			t.Logf("%v after the first offer all but %d lanes have the opening as their bound", time.Since(offered).Round(time.Millisecond), early())
		}
		t.Logf("the slowest command took %v", slowest(t, s.server))
		time.Sleep(time.Until(r.opens.Add(-o.closed)))
		since := time.Now()
		time.Sleep(time.Until(r.opens.Add(-100 * time.Millisecond)))
		r.see(t, "closed", since, time.Now())
		closed = r.p99(since, time.Now())
	}
	t.Logf("a lane with its job has %d bytes in Redis, and %d in the leader", (usedMemory(t, s.server)-memory)/o.lanes, (heapInUse()-heap)/o.lanes)
	slowest(t, s.server)
	before, busy, n := commandsOf(t, s.server), scriptTime(t, s.server), r.count()
	time.Sleep(time.Until(r.opens.Add(o.open)))
	end, started := time.Now(), r.count()-n
	cost := float64(commandsOf(t, s.server)-before) / float64(started)
	t.Logf("%d starts, of %.1f commands and %.0f µs of scripts each; the slowest command took %v",
		started, cost, float64(scriptTime(t, s.server)-busy)/float64(started), slowest(t, s.server))
	r.see(t, "the first second", r.opens, r.opens.Add(time.Second))
	r.see(t, "open", r.opens, end)
	open := r.p99(r.opens, end)
	cancel()
	neighbour.Wait()
	stop()
	if o.hours != "" {
		r.judge(t, end, s.judged)
		if s.judged && open > closed+2*time.Millisecond {
			t.Errorf("the neighbour's p99 is %v, and was %v before the opening", open, closed)
		}
	}
	return cost
}

func (o opening) policies() queue.Policies {
	leak := throttle.Leak(o.perSecond, time.Second)
	if o.ramp > 0 {
		leak = leak.Ramping(o.ramp)
	}
	hours, crowd := throttle.Hours("08:00-20:00", "", "UTC"), queue.Policy{Tenant: []throttle.Rule{leak}}
	p := queue.Policies{Default: "crowd", Policies: map[string]queue.Policy{"neighbour": {}}, Tenants: map[string]string{"neighbour": "neighbour"}}
	switch o.hours {
	case "user":
		crowd.User = []throttle.Rule{hours}
	case "limit":
		p.Limits = map[string]queue.Limit{"hours": {Types: []string{"push"}, Key: []string{"tenant", "user"}, Rules: []throttle.Rule{hours}}}
	}
	p.Policies["crowd"] = crowd
	return p
}

// count returns how many jobs have started.
func (r *openingRun) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.starts) + len(r.neighbour)
}

// offerNeighbour offers jobs one by one, so often.
func (r *openingRun) offerNeighbour(t *testing.T, ctx context.Context, client redis.UniversalClient) {
	offers := newClient(t, client, "push")
	tick := time.NewTicker(r.each)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		job := queue.Job{Tenant: "neighbour", User: fmt.Sprint("n", n%50), Type: "other", Payload: binary.LittleEndian.AppendUint64(nil, uint64(time.Now().UnixNano()))}
		if _, err := offers.Enqueue(context.WithoutCancel(ctx), job); err != nil {
			t.Error(err)
			return
		}
	}
}

// delays returns those of the neighbour's jobs that were offered within a time, in order.
func (r *openingRun) delays(from, to time.Time) (all []time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.neighbour {
		if !d.offered.Before(from) && d.offered.Before(to) {
			all = append(all, d.took)
		}
	}
	slices.Sort(all)
	return all
}

func (r *openingRun) p99(from, to time.Time) time.Duration {
	all := r.delays(from, to)
	if len(all) == 0 {
		return 0
	}
	return all[len(all)*99/100]
}

func (r *openingRun) see(t *testing.T, what string, from, to time.Time) {
	t.Helper()
	all := r.delays(from, to)
	if len(all) == 0 {
		t.Errorf("%s: nothing of the neighbour was started", what)
		return
	}
	at := func(q int) time.Duration { return all[len(all)*q/1000].Round(10 * time.Microsecond) }
	load, _ := os.ReadFile("/proc/loadavg")
	t.Logf("%s: the neighbour's %d jobs start after %v, p99 %v, p99.9 %v, at most %v; load %.4s", what, len(all), at(500), at(990), at(999), all[len(all)-1].Round(10*time.Microsecond), load)
}

// allowed returns how many starts the leak allows until so long after the opening.
func (o opening) allowed(after time.Duration) float64 {
	const first = 0.1 // of the rate, where a ramp begins
	x, ramp := after.Seconds(), o.ramp.Seconds()
	ramping := math.Min(x, ramp)
	n := x - ramping
	if ramping > 0 {
		n += first*ramping + (1-first)*ramping*ramping/(2*ramp)
	}
	return n * float64(o.perSecond)
}

// judge checks the starts by the machine's clock.
func (r *openingRun) judge(t *testing.T, end time.Time, rates bool) {
	slices.SortFunc(r.starts, time.Time.Compare)
	if len(r.starts) == 0 {
		t.Fatal("nothing has started")
	}
	for i, at := range r.starts {
		if after := at.Sub(r.opens); after < 0 || float64(i) > r.allowed(after)+1 {
			t.Fatalf("start %d comes %v after the opening: the leak allows %.0f by then", i, after, r.allowed(max(after, 0)))
		}
	}
	until := func(at time.Time) int {
		n, _ := slices.BinarySearchFunc(r.starts, at, time.Time.Compare)
		return n
	}
	most := math.Min(float64(r.lanes), r.allowed(end.Sub(r.opens)))
	share := float64(until(end)) / most
	t.Logf("%.2f %% of what the leak allows; the first start %v after the opening", 100*share, r.starts[0].Sub(r.opens))
	if rates && share < 0.98 {
		t.Errorf("%.1f %% of what the leak allows was used", 100*share)
	}
	worst := 0.0
	for from := time.Duration(0); from+time.Second <= end.Sub(r.opens); from += time.Second {
		n := until(r.opens.Add(from+time.Second)) - until(r.opens.Add(from))
		want := r.allowed(from+time.Second) - r.allowed(from)
		if off := float64(n)/want - 1; math.Abs(off) > math.Abs(worst) && r.allowed(from+time.Second) < float64(r.lanes) {
			worst = off
		}
	}
	t.Logf("second by second the rate is off by %+.1f %% at most", 100*worst)
	if rates && math.Abs(worst) > 0.05 {
		t.Errorf("in one second the rate is off by %+.1f %%", 100*worst)
	}
}

// slowest returns how long the slowest command took since it was asked last.
func slowest(t *testing.T, client *redis.Client) (most time.Duration) {
	t.Helper()
	if client == nil {
		return 0
	}
	log, err := client.SlowLogGet(t.Context(), -1).Result()
	must(t, err)
	for _, entry := range log {
		if !strings.EqualFold(entry.Args[0], "slowlog") && !strings.EqualFold(entry.Args[0], "zcount") {
			most = max(most, entry.Duration)
		}
	}
	must(t, client.Do(t.Context(), "SLOWLOG", "RESET").Err())
	return most
}

// usedMemory returns how many bytes Redis has.
func usedMemory(t *testing.T, client *redis.Client) int {
	t.Helper()
	return infoOf(t, client, "memory", "used_memory:")
}

// scriptTime returns for how many µs scripts have run.
func scriptTime(t *testing.T, client *redis.Client) int {
	t.Helper()
	return infoOf(t, client, "commandstats", "cmdstat_evalsha:calls=")
}

// commandsOf returns how many commands Redis has run.
func commandsOf(t *testing.T, client *redis.Client) int {
	if client == nil {
		return 0
	}
	return commands(t, client)
}

// infoOf returns a number of a field that Redis tells of itself; of a command the time that it has taken.
func infoOf(t *testing.T, client *redis.Client, section, field string) int {
	t.Helper()
	if client == nil {
		return 0
	}
	for line := range strings.Lines(client.Info(t.Context(), section).Val()) {
		if value, is := strings.CutPrefix(strings.TrimSpace(line), field); is {
			if _, after, found := strings.Cut(value, "usec="); found {
				value, _, _ = strings.Cut(after, ",")
			}
			n, err := strconv.Atoi(value)
			must(t, err)
			return n
		}
	}
	t.Fatalf("no %s", field)
	return 0
}

// heapInUse returns how many bytes this process holds.
func heapInUse() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// lanesOf returns how many lanes WATERCLOCK_LANES says, or the usual number.
func lanesOf(t *testing.T, usual int) int {
	t.Helper()
	text := os.Getenv("WATERCLOCK_LANES")
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	must(t, err)
	return n
}
