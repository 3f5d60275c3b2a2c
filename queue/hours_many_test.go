package queue_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

// Users of a tenant wait for one opening. None starts before, the tenant's leak holds and is used up, its ramp is a line, and a neighbour
// does not feel it.
func TestManyLanesOpenTogether(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	for name, o := range map[string]opening{"user": {hours: "user", ramp: time.Second}, "limit": {hours: "limit"}} {
		o.lanes, o.perSecond, o.each = 1000, 250, 20*time.Millisecond
		o.before, o.offering, o.closed, o.open = time.Second, time.Second, 2*time.Second, 2*time.Second
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, way := newMini(t), &road{there: time.Millisecond / 2, back: time.Millisecond / 2}
				o.measure(t, openingStage{
					clock:    func(at time.Time) (opens time.Time) { return at },
					newRedis: func() *redis.Client { return way.client(t, server) },
					judged:   true,
				})
			})
		})
	}
}

// The same on a Redis, with a million users where every case is run: then a start also costs what it costs without hours. Otherwise how
// busy the machine is decides about rates and delays, and only the leak is judged.
func TestManyLanesOpenTogetherOnRedis(t *testing.T) {
	t.Parallel()
	sample.Slow(t)
	base := opening{
		lanes: 3000, perSecond: 500, each: 10 * time.Millisecond,
		before: time.Second / 2, offering: 4 * time.Second, closed: time.Second, open: 2 * time.Second,
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
			cost := o.measure(t, openingStage{
				server: server.Client(t),
				judged: sample.Whole(),
				clock: func(at time.Time) time.Time { // Redis's clock is set so that it is the hour of the opening then
					opens := time.Now().Add(o.before + o.offering + o.closed)
					wall.Step(at.Sub(opens))
					return opens
				},
				newRedis: func() *redis.Client { return server.Client(t) },
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
	clock    func(at time.Time) (opens time.Time) // by the machine's clock, when Redis's shows that
	newRedis func() *redis.Client
	server   *redis.Client // asked for what it does; nil in virtual time
	judged   bool          // nothing else decides about rates and delays
}

// measure runs a scene, judges it, and returns how many commands of Redis a start costs.
func (o opening) measure(t *testing.T, s openingStage) float64 {
	client := s.newRedis()
	eight := time.Now().UTC().Truncate(24 * time.Hour).Add(32 * time.Hour)
	r := &openingRun{opening: o, opens: s.clock(eight)}
	began := r.opens.Add(-o.before - o.offering - o.closed)
	r.await(began)
	setPolicies(t, client, o.policies())
	memory, heap := usedMemory(t, s.server), heapInUse()
	stop := runWorker(t, s.newRedis(), r, queue.WorkerConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	var neighbour sync.WaitGroup
	neighbour.Go(func() { r.offerNeighbour(t, ctx, s.newRedis()) })
	neighbour.Go(func() { r.watchMachine(ctx) })
	defer func() { cancel(); neighbour.Wait() }()

	r.await(began.Add(o.before))
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
	if s.server != nil { // in virtual time it takes none
		r.see(t, "while they are offered", offered, time.Now())
	}
	var closed time.Duration
	if o.hours == "" {
		r.opens = time.Now()
	} else {
		if o.hours == "user" {
			early := func() int64 {
				return client.ZCount(t.Context(), "wc:{push}:due:crowd", "-inf", fmt.Sprintf("(%d", eight.UnixMicro())).Val()
			}
			for early() > 0 && time.Until(r.opens) > o.closed {
				r.await(time.Now().Add(50 * time.Millisecond))
			}
			t.Logf("%v after the first offer all but %d lanes have the opening as their bound", time.Since(offered).Round(time.Millisecond), early())
		}
		t.Logf("the slowest command took %v", slowest(t, s.server))
		t.Logf("a lane with its job has %d bytes in Redis, and %d in the leader", (usedMemory(t, s.server)-memory)/o.lanes, (heapInUse()-heap)/o.lanes)
		r.await(r.opens.Add(-o.closed))
		since := time.Now()
		r.await(r.opens.Add(-100 * time.Millisecond))
		r.see(t, "closed", since, time.Now())
		closed = r.p99(since, time.Now())
	}
	slowest(t, s.server)
	before, busy, n := commandsOf(t, s.server), scriptTime(t, s.server), r.count()
	r.await(r.opens.Add(o.open))
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
