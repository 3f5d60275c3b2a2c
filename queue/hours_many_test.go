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
	lanes     int
	perSecond int           // the leak of the crowd's tenant
	ramp      time.Duration // of that leak
	hours     string        // whose rule they are: "user", "limit", or "" without hours: the leak begins at once
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

// Users of a tenant wait for one opening: a million of them, where every case is run. None starts before, the tenant's leak holds and is
// used up, its ramp is a line, a neighbour does not feel it, and a start costs Redis what it costs without hours.
func TestManyLanesOpenTogether(t *testing.T) {
	redistest.Slow(t)
	base := opening{
		lanes: 3000, perSecond: 500, each: 10 * time.Millisecond,
		before: time.Second, offering: 2 * time.Second, closed: time.Second, open: 3 * time.Second,
	}
	if sample.Whole() {
		base = opening{
			lanes: 1_000_000, perSecond: 2000, each: 5 * time.Millisecond,
			before: 15 * time.Second, offering: 4 * time.Minute, closed: 15 * time.Second, open: 30 * time.Second,
		}
	}
	if n, err := strconv.Atoi(os.Getenv("WATERCLOCK_LANES")); err == nil {
		base.lanes, base.offering = n, time.Duration(n)*240*time.Microsecond+5*time.Second
	}
	cost := map[string]float64{}
	for _, scene := range []struct {
		name, hours string
		ramp        time.Duration
	}{{"calm", "", 0}, {"user", "user", 0}, {"ramp", "user", 20 * time.Second}, {"limit", "limit", 0}} {
		o := base
		if o.hours, o.ramp = scene.hours, scene.ramp; o.ramp > 0 && !sample.Whole() {
			o.ramp = 2 * time.Second
		}
		if scene.hours == "" {
			o.lanes = min(o.lanes, int(float64(o.perSecond)*(o.open.Seconds()+5)))
		}
		t.Run(scene.name, func(t *testing.T) { cost[scene.name] = o.play(t) })
	}
	for name, each := range cost {
		if each > 1.2*cost["calm"] {
			t.Errorf("%s: %.1f commands a start, %.1f without hours", name, each, cost["calm"])
		}
	}
}

// play runs a scene, judges it, and returns how many commands of Redis a start costs.
func (o opening) play(t *testing.T) float64 {
	server, wall := redistest.StartWithClock(t, "--slowlog-log-slower-than", "1000", "--slowlog-max-len", "10000")
	client := server.Client(t)
	// Redis's clock is set so that the hours open when the scene wants it.
	const at = "08:00"
	began := time.Now()
	closedFor := o.before + o.offering + o.closed
	r := &openingRun{opening: o, opens: began.Add(closedFor)}
	eight := began.UTC().Truncate(24 * time.Hour).Add(32 * time.Hour)
	wall.Step(eight.Sub(r.opens))

	leak := throttle.Leak(o.perSecond, time.Second)
	if o.ramp > 0 {
		leak = leak.Ramping(o.ramp)
	}
	hours := throttle.Hours(at+"-20:00", "", "UTC")
	crowd := queue.Policy{Tenant: []throttle.Rule{leak}}
	p := queue.Policies{Default: "crowd", Policies: map[string]queue.Policy{"neighbour": {}}, Tenants: map[string]string{"neighbour": "neighbour"}}
	switch o.hours {
	case "user":
		crowd.User = []throttle.Rule{hours}
	case "limit":
		p.Limits = map[string]queue.Limit{"hours": {Types: []string{"push"}, Key: []string{"tenant", "user"}, Rules: []throttle.Rule{hours}}}
	}
	p.Policies["crowd"] = crowd
	setPolicies(t, client, p)
	memory := usedMemory(t, client)
	heap := heapInUse()
	stop := runWorker(t, server.Client(t), r, queue.WorkerConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	var offering sync.WaitGroup
	offering.Go(func() { r.offerNeighbour(t, ctx, server.Client(t)) })
	defer func() { cancel(); offering.Wait() }()

	time.Sleep(time.Until(began.Add(o.before)))
	r.see(t, "alone", began.Add(o.before/5), time.Now())
	slowest(t, client)
	offered := time.Now()
	batch := make([]queue.Job, 0, 1000)
	for i := range o.lanes {
		if batch = append(batch, queue.Job{Tenant: "crowd", User: fmt.Sprint("user-", i), Type: "push", Payload: []byte("good morning")}); len(batch) == cap(batch) || i == o.lanes-1 {
			enqueue(t, client, batch...)
			batch = batch[:0]
		}
	}
	took := time.Since(offered)
	t.Logf("%d jobs offered in %v, %.0f/s", o.lanes, took.Round(time.Millisecond), float64(o.lanes)/took.Seconds())
	r.see(t, "while they are offered", offered, time.Now())
	if o.hours != "" {
		parked := func() bool { return o.hours == "limit" || client.ZCount(t.Context(), "wc:{push}:due:crowd", "-inf", fmt.Sprintf("(%d", eight.UnixMicro())).Val() == 0 }
		for !parked() && time.Until(r.opens) > o.closed {
			time.Sleep(20 * time.Millisecond)
		}
		t.Logf("they wait for the opening after %v; slowest command %v", time.Since(offered).Round(time.Millisecond), slowest(t, client))
		if !parked() {
			t.Errorf("after %v they still have no bounds", time.Since(offered).Round(time.Second))
		}
	}
	memory, heap = usedMemory(t, client)-memory, heapInUse()-heap
	t.Logf("a lane with its job has %d bytes in Redis, and %d in the leader", memory/o.lanes, heap/o.lanes)
	time.Sleep(time.Until(r.opens.Add(-o.closed)))
	since := time.Now()
	time.Sleep(time.Until(r.opens.Add(-100 * time.Millisecond)))
	r.see(t, "closed", since, time.Now())
	closed := r.p99(since, time.Now())
	if o.hours == "" {
		r.opens = time.Now()
	}
	r.mu.Lock()
	startsBefore, neighbourBefore := len(r.starts), len(r.neighbour)
	r.mu.Unlock()
	commandsBefore, µsBefore := commands(t, client), scriptTime(t, client)
	slowest(t, client)
	time.Sleep(time.Until(r.opens.Add(o.open)))
	end := time.Now()
	r.mu.Lock()
	started := len(r.starts) - startsBefore
	all := started + len(r.neighbour) - neighbourBefore
	r.mu.Unlock()
	cost := float64(commands(t, client)-commandsBefore) / float64(all)
	t.Logf("%d starts of the crowd, %.1f commands and %.0f µs of scripts each of all; slowest command %v", started, cost, float64(scriptTime(t, client)-µsBefore)/float64(all), slowest(t, client))
	r.see(t, "first 2 s", r.opens, r.opens.Add(2*time.Second))
	r.see(t, "open", r.opens, end)
	t.Logf("the leader has %d KiB more than before", (heapInUse()-heap)>>10)
	cancel()
	offering.Wait()
	stop()
	if o.hours != "" {
		r.judge(t, end)
	}
	if open := r.p99(r.opens, end); o.hours != "" && sample.Whole() && open > closed+2*time.Millisecond {
		t.Errorf("the neighbour's p99 is %v, and was %v before the opening", open, closed)
	}
	return cost
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
func (r *openingRun) judge(t *testing.T, end time.Time) {
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
	if share < 0.98 {
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
	if math.Abs(worst) > 0.05 {
		t.Errorf("in one second the rate is off by %+.1f %%", 100*worst)
	}
}

// slowest returns how long the slowest command took since it was asked last.
func slowest(t *testing.T, client *redis.Client) (most time.Duration) {
	t.Helper()
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

func infoOf(t *testing.T, client *redis.Client, section, field string) int {
	t.Helper()
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
