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

	"github.com/waterclock/waterclock/queue"
)

// A run of an opening: what was seen of it, by the machine's clock.
type openingRun struct {
	opening
	opens time.Time

	mu        sync.Mutex
	starts    []time.Time // of the crowd
	neighbour []delay
	machine   []delay // by how much a goroutine that does nothing wakes too late: what the machine does to everybody
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

// await waits for an instant of the scene.
func (r *openingRun) await(at time.Time) { <-time.After(time.Until(at)) }

// watchMachine notes how late its timer rings.
func (r *openingRun) watchMachine(ctx context.Context) {
	const each = 2 * time.Millisecond
	for ctx.Err() == nil {
		began := time.Now()
		r.await(began.Add(each))
		r.mu.Lock()
		r.machine = append(r.machine, delay{began, time.Since(began) - each})
		r.mu.Unlock()
	}
}

// delays returns those that began within a time, in order.
func (r *openingRun) delays(of *[]delay, from, to time.Time) (all []time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range *of {
		if !d.offered.Before(from) && d.offered.Before(to) {
			all = append(all, d.took)
		}
	}
	slices.Sort(all)
	return all
}

func (r *openingRun) p99(from, to time.Time) time.Duration {
	all := r.delays(&r.neighbour, from, to)
	if len(all) == 0 {
		return 0
	}
	return all[len(all)*99/100]
}

func (r *openingRun) see(t *testing.T, what string, from, to time.Time) {
	t.Helper()
	all, machine := r.delays(&r.neighbour, from, to), r.delays(&r.machine, from, to)
	if len(all)*len(machine) == 0 {
		t.Errorf("%s: nothing of the neighbour was started", what)
		return
	}
	of := func(all []time.Duration) string {
		at := func(q int) time.Duration { return all[len(all)*q/1000].Round(10 * time.Microsecond) }
		return fmt.Sprintf("p50 %v, p99 %v, p99.9 %v, at most %v", at(500), at(990), at(999), all[len(all)-1].Round(10*time.Microsecond))
	}
	t.Logf("%s: the neighbour's %d jobs start after %s; the machine's timers are late by %s", what, len(all), of(all), of(machine))
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
	if first := r.starts[0].Sub(r.opens); rates && first > 10*time.Millisecond+time.Second/time.Duration(r.perSecond) {
		t.Errorf("the first start comes %v after the opening", first)
	}
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
