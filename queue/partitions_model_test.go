package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
	"github.com/waterclock/waterclock/throttle/limits"
)

// A dividedWorld is a queue of four partitions, or of one that has a shared limit, whose workers die and leave, and whose operators act at random. Its judge goes by what the
// handlers saw and by the clock of the bubble: it knows of no partition.
type dividedWorld struct {
	*rand.Rand            // of the acts
	fates      *rand.Rand // of the jobs
	t          *testing.T
	server     *miniredis.Miniredis
	client     *redis.Client
	inspector  *queue.Inspector
	workers    []*dividedWorker
	partitions int
	policies   queue.Policies // that are in force
	drops      bool           // a rule that drops was in force
	overridden []time.Time    // when overrides of the rules of the queue have begun and ended

	mu      sync.Mutex
	jobs    map[string]*dividedJob
	names   []string
	inForce []dividedLimits
	running map[string]int // by who counts it
	starts  []dividedStart
	outside []dividedStart // of the account, by somebody who has no queue
	did     map[string]int
}

type dividedWorker struct {
	lost     chan struct{}
	dead     bool
	killedAt time.Time
	stop     func()
}

// untold reports whether a worker was killed before it can have told of an end for certain.
func (e dividedEnd) untold() bool { return e.by.dead && e.by.killedAt.Sub(e.at) < 100*time.Millisecond }

type dividedJob struct {
	queue.Job
	accepted, cancelled, done bool
	purged                    bool // or may be
	excused                   int  // runs whose worker was killed, or that failed
	runs                      int
	ends                      []dividedEnd
}

// A dividedEnd is when a run has ended well, and at which worker.
type dividedEnd struct {
	at time.Time
	by *dividedWorker
}

type dividedStart struct {
	id, tenant, domain string
	slot, at           time.Time
}

// dividedLimits are in force from an instant on.
type dividedLimits struct {
	from                 time.Time
	leak, window         int // of the queue, a second and in two
	fixed                int // of the queue, in each second of the clock
	account              int // of the account that is shared with somebody outside, in a second
	places               int // of the queue
	domain, domainAtOnce int // in a second, for each; at once
	tenant               int // leak of each tenant, a second
}

// dividedGrace is for how long limits of before may have their effect, and what was decided by them may start.
const dividedGrace = 1500 * time.Millisecond

// loosest returns the largest number that was in force between two instants.
func (w *dividedWorld) loosest(from, to time.Time, of func(dividedLimits) int) (n int) {
	for k, l := range w.inForce {
		if !l.from.After(to) && (k+1 == len(w.inForce) || !w.inForce[k+1].from.Before(from.Add(-dividedGrace))) {
			n = max(n, of(l))
		}
	}
	return n
}

// changed reports whether other rules of the queue may have come into effect between two instants.
func (w *dividedWorld) changed(from, to time.Time) bool {
	among := func(at time.Time) bool { return at.After(from.Add(-dividedGrace)) && !at.After(to) }
	return slices.ContainsFunc(w.inForce, func(l dividedLimits) bool { return among(l.from) }) || slices.ContainsFunc(w.overridden, among)
}

func newDividedWorld(t *testing.T, seed uint64) *dividedWorld {
	w := &dividedWorld{
		Rand: rand.New(rand.NewPCG(seed, 19)), fates: rand.New(rand.NewPCG(seed, 20)), t: t, server: newMini(t), jobs: make(map[string]*dividedJob), running: make(map[string]int), did: make(map[string]int),
	}
	w.partitions = []int{1, 4, 4}[w.IntN(3)]
	w.client = redistest.MiniClient(t, w.server)
	w.inspector = newInspector(t, w.client, "push")
	w.govern()
	for range 3 {
		w.hire()
	}
	return w
}

func (w *dividedWorld) chance(n int) bool { return w.IntN(n) == 0 }

// govern puts other limits in force.
func (w *dividedWorld) govern() {
	l := dividedLimits{fixed: 1_000_000, account: 1_000_000, leak: 30 + w.IntN(60), window: 60 + w.IntN(120), places: 3 + w.IntN(10), domain: 8 + w.IntN(20), domainAtOnce: 1 + w.IntN(4), tenant: 10 + w.IntN(30)}
	p := policies(queue.Policy{
		Tenant: []throttle.Rule{throttle.Leak(l.tenant, time.Second)}, User: []throttle.Rule{throttle.Spacing(100 * time.Millisecond)}, Weight: 1 + w.IntN(3),
	})
	p.Partitions, p.Concurrency = w.partitions, queue.Concurrency{Jobs: l.places}
	p.Queue = []throttle.Rule{throttle.Leak(l.leak, time.Second), throttle.Window(l.window, 2*time.Second)}
	p.Limits = map[string]queue.Limit{"domain": {
		Key: []string{"keys.domain"}, Rules: []throttle.Rule{throttle.Window(l.domain, time.Second)}, Concurrency: queue.Concurrency{Jobs: l.domainAtOnce},
	}}
	w.mu.Lock()
	which := w.fates.IntN(8) // handlers draw, too
	w.mu.Unlock()
	switch which {
	case 0: // the queue drops
		p.Queue[1], w.drops = p.Queue[1].OrDrop(), true
	case 1: // a limit by name does
		domain := p.Limits["domain"]
		domain.Rules[0], w.drops = domain.Rules[0].OrDrop(), true
	case 3: // and counts that
		p.Queue[1], w.drops = p.Queue[1].OrDrop().CountingDropped(), true
	case 4:
		p.Queue[0] = p.Queue[0].Ramping(2 * time.Second)
	case 2: // shadows keep nobody
		p.Queue = append(p.Queue, throttle.Window(1, time.Second).AsShadow())
	}
	switch w.IntN(6) {
	case 0: // the queue has places alone
		p.Queue, l.leak, l.window = nil, 1_000_000, 1_000_000
	case 1: // and here rules alone
		p.Concurrency, l.places = queue.Concurrency{}, 1_000_000
	case 2:
		p.Limits, l.domain, l.domainAtOnce = nil, 1_000_000, 1_000_000
	}
	if p.Queue != nil && w.chance(2) {
		l.fixed = 20 + w.IntN(40)
		p.Queue = append(p.Queue, throttle.FixedWindow(l.fixed, time.Second))
	}
	if p.Limits != nil && w.chance(2) {
		l.account = 20 + w.IntN(60)
		p.Limits["account"] = shared(throttle.Window(l.account, time.Second))
	}
	before := time.Now()
	must(w.t, w.inspector.SetPolicies(w.t.Context(), p))
	l.from, w.policies = before, p
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inForce = append(w.inForce, l)
}

func (w *dividedWorld) hire() {
	of := &dividedWorker{lost: make(chan struct{})}
	handler := asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error { return w.handle(ctx, of) })
	of.stop = runWorker(w.t, clientUntil(w.t, w.server, of.lost), handler, queue.WorkerConfig{
		Concurrency: 4 + w.IntN(10), Lease: 2 * time.Second, ShutdownTimeout: time.Second, RetryDelay: after(200 * time.Millisecond),
	})
	w.workers = append(w.workers, of)
}

func (w *dividedWorld) tenant() string { return fmt.Sprint("t", w.IntN(9)) }

func (w *dividedWorld) user() string { return fmt.Sprint("u", w.IntN(6)) }

// offer offers some jobs of some tenants.
func (w *dividedWorld) offer() {
	var batch []queue.Job
	w.mu.Lock()
	for range 1 + w.IntN(12) {
		j := queue.Job{ID: fmt.Sprint("job-", len(w.names)), Tenant: w.tenant(), User: w.user(), Type: "x"}
		if w.chance(2) {
			j.Keys = map[string]string{"domain": fmt.Sprint("d", w.IntN(3))}
		}
		if w.chance(8) {
			j.Priority = queue.High
		}
		if w.chance(8) {
			j.NotBefore = time.Now().Add(time.Duration(w.IntN(2000)) * time.Millisecond)
		}
		batch, w.names = append(batch, j), append(w.names, j.ID)
		w.jobs[j.ID] = &dividedJob{Job: j, accepted: true}
	}
	w.mu.Unlock()
	for i, r := range enqueue(w.t, w.client, batch...) {
		if r.Status != queue.Accepted {
			w.t.Errorf("%s: %+v", batch[i].ID, r)
		}
	}
}

func (w *dividedWorld) cancel() {
	if len(w.names) == 0 {
		return
	}
	id := w.names[len(w.names)-1-w.IntN(min(30, len(w.names)))]
	was, err := w.inspector.Cancel(w.t.Context(), id)
	must(w.t, err)
	if was {
		w.mu.Lock()
		w.jobs[id].cancelled = true
		w.mu.Unlock()
	}
}

// spend lets somebody outside spend some of the account.
func (w *dividedWorld) spend() {
	if _, shared := w.policies.Limits["account"]; !shared {
		return
	}
	set := outside(w.t, w.client, w.policies)
	for range 1 + w.IntN(6) {
		d, err := set.Acquire(w.t.Context(), "account", limits.Fields{}, 100*time.Millisecond)
		must(w.t, err)
		if d.Outcome == throttle.Admitted {
			w.outside = append(w.outside, dividedStart{id: "outside", slot: d.Slot, at: d.Slot})
		}
	}
}

// override makes a limit tighter for a time.
func (w *dividedWorld) override() {
	o := queue.Override{Limit: "tenant", Key: []string{w.tenant()}, Rules: []throttle.Rule{throttle.Leak(1+w.IntN(10), time.Second)}}
	switch w.IntN(4) {
	case 0:
		if w.policies.Queue == nil {
			return
		}
		o.Limit, o.Key, o.Rules = "queue", nil, append(slices.Clone(w.policies.Queue[1:]), throttle.Leak(1+w.IntN(20), time.Second))
	case 1:
		if w.policies.Limits == nil {
			return
		}
		o.Limit, o.Key, o.Rules = "domain", []string{fmt.Sprint("d", w.IntN(3))}, []throttle.Rule{throttle.Window(1+w.IntN(7), time.Second)}
	}
	o.For = time.Second + time.Duration(w.IntN(2000))*time.Millisecond
	must(w.t, w.inspector.Override(w.t.Context(), o))
	if o.Limit == "queue" {
		w.overridden = append(w.overridden, time.Now(), time.Now().Add(o.For))
	}
}

// purge drops what waits of a tenant.
func (w *dividedWorld) purge() {
	tenant := w.tenant()
	w.mu.Lock()
	for _, j := range w.jobs {
		j.purged = j.purged || j.Tenant == tenant && !j.done
	}
	w.mu.Unlock()
	_, err := w.inspector.Purge(w.t.Context(), tenant)
	must(w.t, err)
}

func (w *dividedWorld) pause() {
	p := queue.Pause{Scope: queue.ScopeTenant, Tenant: w.tenant(), Until: time.Now().Add(time.Duration(w.IntN(2000)) * time.Millisecond)}
	switch w.IntN(5) {
	case 0:
		p.Scope, p.Tenant = queue.ScopeQueue, ""
	case 2:
		p.Scope, p.User = queue.ScopeUser, w.user()
	case 1:
		p.Scope, p.Tenant, p.Limit, p.Key = queue.ScopeLimit, "", "domain", fmt.Sprint("d", w.IntN(3))
	}
	if err := w.inspector.Pause(w.t.Context(), p); err != nil && p.Scope != queue.ScopeLimit { // there may be no such limit
		w.t.Error(err)
	}
}

func (w *dividedWorld) resume() {
	pauses, err := w.inspector.Pauses(w.t.Context())
	must(w.t, err)
	for _, p := range pauses {
		must(w.t, w.inspector.Resume(w.t.Context(), p))
	}
}

// kill cuts a worker off for ever: nothing that it does counts from then on.
func (w *dividedWorld) kill() {
	of := w.workers[0]
	w.mu.Lock()
	of.dead, of.killedAt = true, time.Now()
	close(of.lost)
	w.mu.Unlock()
	w.replace()
}

func (w *dividedWorld) replace() {
	of := w.workers[0]
	w.workers = w.workers[1:]
	w.hire()
	go of.stop()
}

// forget lets Redis forget what the whole queue knows of its workers, and all scripts.
func (w *dividedWorld) forget() {
	if w.partitions > 1 { // otherwise it is where the leases of the workers are
		w.client.Del(w.t.Context(), "wc:{push}:workers", "wc:{push}:wanted", "wc:{push}:sizes")
	}
	w.client.ScriptFlush(w.t.Context())
}

// handle is the handler of all workers.
func (w *dividedWorld) handle(ctx context.Context, of *dividedWorker) error {
	info, _ := queue.FromContext(ctx)
	w.mu.Lock()
	if of.dead {
		w.mu.Unlock()
		return silent(ctx)
	}
	j := w.jobs[info.ID]
	now, domain := time.Now(), info.Keys["domain"]
	j.runs++
	who := []string{"queue"}
	if domain != "" {
		who = append(who, domain)
	}
	w.starts = append(w.starts, dividedStart{info.ID, info.Tenant, domain, info.Slot, now})
	for k, one := range who {
		w.running[one]++
		most := w.loosest(now, now, func(l dividedLimits) int { return []int{l.places, l.domainAtOnce}[k] })
		if w.running[one] > most {
			w.t.Errorf("%v: %s is one of %d of %s at once, of %d", now, info.ID, w.running[one], one, most)
		}
	}
	lasts, fate := time.Duration(10+w.fates.IntN(300))*time.Millisecond, w.fates.IntN(24)
	w.mu.Unlock()
	time.Sleep(lasts)
	w.mu.Lock()
	for _, one := range who {
		w.running[one]-- // what a dead worker ran does not count any more
	}
	if of.dead {
		j.excused++
		w.mu.Unlock()
		return silent(ctx)
	}
	defer w.mu.Unlock()
	switch fate {
	case 0, 1:
		j.excused++
		return errors.New("it fails")
	case 2:
		j.excused++
		return queue.RefundUser{Err: errors.New("the user has seen nothing")}
	case 3:
		j.excused++
		return queue.Pause{For: 300 * time.Millisecond, Scope: queue.ScopeUser}
	}
	j.done, j.ends = true, append(j.ends, dividedEnd{time.Now(), of})
	return nil
}

// play lets the acts happen, and then all end.
func (w *dividedWorld) play() {
	acts := []struct {
		name  string
		often int
		do    func()
	}{
		{"offer", 40, w.offer}, {"cancel", 5, w.cancel}, {"purge", 2, w.purge}, {"override", 2, w.override}, {"spend", 10, w.spend}, {"pause", 4, w.pause}, {"resume", 3, w.resume}, {"govern", 4, w.govern},
		{"kill", 2, w.kill}, {"leave", 1, w.replace}, {"forget", 1, w.forget},
	}
	all := 0
	for _, act := range acts {
		all += act.often
	}
	for range 150 {
		n := w.IntN(all)
		for _, act := range acts {
			if n -= act.often; n < 0 {
				act.do()
				w.did[act.name]++
				break
			}
		}
		time.Sleep(time.Duration(w.IntN(250)) * time.Millisecond)
	}
	w.resume()
	begin := time.Now()
	for !drained(w.t, w.client)() && time.Since(begin) < 5*time.Minute {
		time.Sleep(time.Second)
	}
	time.Sleep(10 * time.Second) // a leader that was killed has a successor by then, which tells what runs
	w.account()
	w.judge()
	if left := placesLeased(w.t, w.client); len(left) > 0 {
		w.t.Errorf("%v places are leased where nothing runs", left)
	}
	sound(w.t, w.client)
}

// account asks of each job how it has ended.
func (w *dividedWorld) account() {
	w.mu.Lock()
	defer w.mu.Unlock()
	var left, ended int64 // jobs that were dropped, and that may have been before an operator ended them
	for _, id := range w.names {
		switch j := w.jobs[id]; {
		case !j.cancelled && !j.done && !j.purged && w.drops:
			left++
		case (j.cancelled || j.purged) && !j.done && j.runs == j.excused:
			ended++
		case j.cancelled && j.runs > j.excused:
			w.t.Errorf("%s was cancelled and ran", id)
		case !j.cancelled && !j.done && !j.purged:
			w.t.Errorf("%s is lost after %d runs", id, j.runs)
		case j.done && j.runs > j.excused+1 && !slices.ContainsFunc(j.ends, dividedEnd.untold):
			w.t.Errorf("%s ran %d times, of which %d are excused", id, j.runs, j.excused)
		}
	}
	stats, err := w.inspector.Stats(w.t.Context())
	if dropped := stats.Reasons[queue.ReasonRule]; err != nil || left > dropped || left < dropped-ended {
		w.t.Errorf("%d jobs have not run, and %d were dropped: %v", left, dropped, err)
	}
}

// judge looks at all starts.
func (w *dividedWorld) judge() {
	w.mu.Lock()
	defer w.mu.Unlock()
	gaps := func(who string, all []dividedStart, rate func(dividedLimits) int) {
		slices.SortFunc(all, func(a, b dividedStart) int { return a.slot.Compare(b.slot) })
		for k := 1; k < len(all); k++ {
			n := w.loosest(all[k-1].slot, all[k].slot, rate)
			if gap := all[k].slot.Sub(all[k-1].slot); gap < time.Second/time.Duration(n)-time.Microsecond {
				w.t.Errorf("%s: %s is %v behind %s at %d/s", who, all[k].id, gap, all[k-1].id, n)
			}
		}
	}
	windows := func(who string, all []dividedStart, period time.Duration, most func(dividedLimits) int) {
		slices.SortFunc(all, func(a, b dividedStart) int { return a.at.Compare(b.at) })
		first := 0
		for k := range all {
			for all[k].at.Sub(all[first].at) >= period {
				first++
			}
			if n := w.loosest(all[first].at, all[k].at, most); k-first+1 > n {
				w.t.Errorf("%s: %d within %v, of %d", who, k-first+1, period, n)
				return
			}
		}
	}
	tenants, domains := make(map[string][]dividedStart), make(map[string][]dividedStart)
	for _, s := range w.starts {
		tenants[s.tenant] = append(tenants[s.tenant], s)
		if s.domain != "" {
			domains[s.domain] = append(domains[s.domain], s)
		}
	}
	gaps("queue", slices.Clone(w.starts), func(l dividedLimits) int { return l.leak })
	windows("queue", slices.Clone(w.starts), 2*time.Second, func(l dividedLimits) int { return l.window })
	windows("account", slices.Concat(w.starts, w.outside), time.Second, func(l dividedLimits) int { return l.account })
	seconds := make(map[int64][]dividedStart)
	for _, s := range w.starts {
		seconds[s.at.Unix()] = append(seconds[s.at.Unix()], s)
	}
	for second, all := range seconds {
		from := time.Unix(second, 0)
		if w.changed(from, from.Add(time.Second)) { // what has started under a rule another one does not count
			continue
		}
		if n := w.loosest(from, from, func(l dividedLimits) int { return l.fixed }); len(all) > n {
			w.t.Errorf("queue: %d in the second of %v, of %d", len(all), all[0].at, n)
		}
	}
	for name, all := range tenants {
		gaps(name, all, func(l dividedLimits) int { return l.tenant })
	}
	for name, all := range domains {
		windows(name, all, time.Second, func(l dividedLimits) int { return l.domain })
	}
}

// Whatever workers and operators do to such a queue: each job ends once, and no rule of the queue, of a tenant or of a limit by
// name is broken, and no more runs than may.
func TestDividedQueueModel(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	seed := sample.SeedOf(t)
	for round := range sample.Size(1, 4, 40) {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newDividedWorld(t, seed+uint64(round))
				w.play()
				t.Log(w.partitions, "partitions,", len(w.names), "jobs,", len(w.starts), "starts,", len(w.outside), "outside,", w.did)
			})
		})
	}
}
