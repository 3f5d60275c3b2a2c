package faults

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

const (
	queueName = "push"
	lease     = 3 * time.Second
	usual     = 150 * time.Millisecond // at most, that a handler takes
	long      = lease + lease/2        // that one in a hundred takes
	users     = 15                     // of each tenant
)

// Some of the time a user's window binds, some of the time its spacing, most of the time
// the leak.
var userRules = []throttle.Rule{throttle.Window(5, time.Second), throttle.Spacing(30 * time.Millisecond)}

// A scene is everything that a fault needs.
type scene struct {
	*crew
	stage
	t          *testing.T
	rng        *rand.Rand
	rounds     int                // so many times as much harm
	inspectors []*queue.Inspector // of the queues
	harm       []harm
	held       []hold
	outside    []*execution // by somebody who has no queue
	used       []span       // when a limit should be used up

	mu       sync.Mutex
	offered  int
	accepted map[string]answer // by ID
	turn     int               // whose queue's the next offer is
}

// An answer is that an offer was accepted: it was between these instants.
type answer struct{ asked, came time.Time }

// A span is a time between two instants.
type span struct{ from, to time.Time }

func (s span) holds(at time.Time) bool { return at.After(s.from) && at.Before(s.to) }

// harm is one occurrence of the fault.
type harm struct {
	worker  string    // who was killed or frozen; empty for a fault that hit all
	at      time.Time // when it began
	healed  time.Time // when what was broken worked again, or the worker that was frozen ran again
	forgets bool      // Redis may have forgotten its last moment
	// By how much Redis's clock was ahead of the machine's before, and after.
	before, after time.Duration
	forgot        time.Time // what it may have forgotten began then; the zero time if it was a moment
	// Whose jobs a Redis has that may have forgotten something, and whether it has the shared limits; nil and false if all have one.
	tenants map[string]bool
	limits  bool
}

// stage is where a scene takes place: how workers reach Redis, and how the judge does.
type stage struct {
	url     string
	client  redis.UniversalClient
	leak    int              // starts of each tenant a second; offers are a little less
	slack   time.Duration    // an acknowledgement is on its way for that long, at most
	urls    []string         // ways to Redis of workers' own; none if all go the same one
	large   int              // bytes of the payload that one job in ten has
	longer  time.Duration    // until jobs of the dead start again, than usual
	first   string           // the program that the first workers are; "" for this one
	users   []throttle.Rule  // userRules if none are given
	queue   []throttle.Rule  // for everything together
	among   int              // tenants; 3 if none are given
	hands   int              // workers; 3 if none are given
	beside  []string         // queues that are offered as much, by turns with the usual one
	stepped bool             // Redis's clock was set: it is not the machine's
	lively  bool             // nobody may be without starts for long beyond the fault
	named   bool             // there are the three limits by name of named_test.go
	account throttle.Rule    // of a limit that all queues share, see sharing_test.go
	pooled  bool             // another limit that is shared counts for each tenant
	apart   bool             // each worker works for one queue
	durable queue.Durability // of offers
	parts   int              // partitions of the queue, see partitions_test.go; 0 if it has none
	atOnce  int              // jobs of the queue run at once, of all partitions, instead of its rules; no limit if 0
	servers bool             // partitions and shared limits are on several servers
	places  int              // of a worker; 0 for as many as it has usually
	each    int              // jobs that are offered every 100 ms; a quarter of leak if none are given
}

func (at stage) tenants() int { return cmp.Or(at.among, 3) }

// queues returns the names of all queues.
func (at stage) queues() []string { return append([]string{queueName}, at.beside...) }

// newScene offers the backlog and starts the workers.
func newScene(t *testing.T, at stage) *scene {
	s := &scene{
		t: t, rng: sample.Rand(t, sample.SeedOf(t)), rounds: int(setting(t, roundsVariable, 1)),
		stage: at, accepted: make(map[string]answer),
		crew: newCrew(t, settings{Redis: at.url, Queue: queueName, Beside: at.beside, Lease: lease, Usual: usual, Long: long, Places: at.places}),
	}
	s.crew.urls, s.crew.program, s.crew.apart = at.urls, at.first, at.apart
	for _, name := range at.queues() {
		s.inspectors = append(s.inspectors, newInspector(t, at.client, name))
	}
	s.setPolicies()
	for range at.queues() {
		s.offer(t.Context(), 10*at.leak)
	}
	for range cmp.Or(at.hands, 3) {
		s.hire()
	}
	s.crew.wait()
	redistest.Eventually(t, 30*time.Second, "jobs start", func() bool {
		stats, err := s.inspectors[0].Stats(t.Context())
		return err == nil && stats.Done > 20
	})
	return s
}

func (s *scene) setPolicies() {
	s.t.Helper()
	for _, inspector := range s.inspectors {
		if err := inspector.SetPolicies(s.t.Context(), s.policies()); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *scene) policies() queue.Policies {
	var byName map[string]queue.Limit
	if s.named {
		byName = threeByName
	}
	if s.account != (throttle.Rule{}) {
		byName = map[string]queue.Limit{"account": {Shared: true, Counts: "jobs", Rules: []throttle.Rule{s.account}}}
		if s.pooled {
			byName["pool"] = queue.Limit{Shared: true, Counts: "jobs", Key: []string{"tenant"}, Rules: []throttle.Rule{throttle.Window(poolLimit, accountPeriod)}}
		}
	}
	return queue.Policies{
		Partitions: s.parts, Limits: byName, Queue: s.queue, Concurrency: queue.Concurrency{Jobs: s.atOnce}, Default: "all", Policies: map[string]queue.Policy{"all": {
			Tenant: s.tenantRules(), User: s.userRules(),
			TenantConcurrency: queue.Concurrency{Jobs: s.tenantAtOnce()}, UserConcurrency: queue.Concurrency{Jobs: userAtOnce},
		}},
	}
}

func (s *scene) userRules() []throttle.Rule {
	if s.users != nil {
		return s.users
	}
	return userRules
}

func (s *scene) tenantRules() []throttle.Rule {
	return []throttle.Rule{throttle.Leak(s.leak, time.Second)}
}

// userAtOnce is how many jobs of a user run at once.
const userAtOnce = 1

// tenantAtOnce is how many jobs of a tenant run at once: fewer than would without the limit
// when a long one or a burst comes, and enough for the leak.
func (s *scene) tenantAtOnce() int { return max(4, s.leak/8) }

// offer offers n jobs and remembers which were accepted. An offer that failed is made
// again until it is known what became of it: the IDs make that safe.
func (s *scene) offer(ctx context.Context, n int) {
	jobs := make([]queue.Job, n)
	s.mu.Lock()
	name := s.queues()[s.turn%len(s.queues())]
	s.turn++
	client := newClient(s.t, s.client, name, queue.ClientConfig{Durability: s.durable})
	for i := range jobs {
		k := s.offered
		s.offered++
		jobs[i] = queue.Job{
			ID: fmt.Sprint("job-", k), Type: "push",
			Tenant: fmt.Sprint(name, "-", s.tenantOf(k)), User: fmt.Sprint("u", k/s.tenants()%users),
		}
		if s.named {
			subjectByName(&jobs[i], k, k/s.tenants()%users)
		}
		if k%10 == 9 {
			jobs[i].Payload = make([]byte, s.large)
		}
		if k%20 == 19 { // some that may expire
			if now, err := s.client.Time(ctx).Result(); err == nil {
				jobs[i].StartBy = now.Add(4 * time.Second)
			}
		}
	}
	s.mu.Unlock()
	for {
		asked := time.Now()
		receipts, err := client.Enqueue(ctx, jobs...)
		s.note(asked, receipts)
		if err == nil {
			return
		}
		expected := strings.Contains(err.Error(), "OOM command not allowed") || strings.Contains(err.Error(), "the policies in force are missing in Redis")
		if ctx.Err() != nil || !expected {
			s.t.Errorf("offering: %v", err) // everything else it gets over by itself
			return
		}
		s.pause(50 * time.Millisecond)
	}
}

// tenantOf returns the number of the tenant of the k-th job: each has as many, but in a queue that is divided one has more.
func (s *scene) tenantOf(k int) int {
	if s.parts > 0 && k%7 == 0 {
		return 0
	}
	return k % s.tenants()
}

func (s *scene) note(asked time.Time, receipts []queue.Receipt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range receipts {
		if r.Status != queue.Dropped {
			s.accepted[r.ID] = answer{asked, time.Now()}
		}
	}
}

// during does harm while jobs are offered, and waits until everything has drained.
func (s *scene) during(harm func()) {
	s.t.Helper()
	s.offering(harm)
	var stats queue.Stats
	defer func() {
		if s.t.Failed() {
			s.t.Logf("in the end: %+v", stats)
		}
	}()
	redistest.Eventually(s.t, 3*time.Minute, "everything has drained", func() bool {
		for _, inspector := range s.inspectors {
			now, err := inspector.Stats(s.t.Context())
			if err == nil {
				stats = now
			}
			if err != nil || stats.Waiting+stats.Later+stats.Running > 0 {
				return false
			}
		}
		return true
	})
	for len(s.members) > 0 {
		s.stop(s.members[0])
	}
}

// offering offers jobs while it does harm, also if that fails.
func (s *scene) offering(harm func()) {
	s.t.Helper()
	stop := make(chan struct{})
	var producer sync.WaitGroup
	producer.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				for range s.queues() {
					s.offer(s.t.Context(), cmp.Or(s.each, s.leak/4))
				}
			}
		}
	})
	defer producer.Wait()
	defer close(stop)
	harm()
}

// freeze stops a worker for a while.
func (s *scene) freeze(victim *member, lasts time.Duration) {
	at := s.signal(victim, syscall.SIGSTOP)
	s.pause(lasts)
	s.signal(victim, syscall.SIGCONT)
	s.harm = append(s.harm, harm{worker: victim.name, at: at, healed: time.Now()})
}

// pause waits.
func (s *scene) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.t.Context().Done():
	}
}

// between returns a random time, from the seed.
func (s *scene) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.rng.Int64N(int64(most-least)))
}

// anyone returns a random worker: one time in three the leader, one time in three the
// worker that started a job last.
func (s *scene) anyone() *member {
	switch s.rng.IntN(3) {
	case 0:
		if m := s.leader(); m != nil {
			return m
		}
	case 1:
		last := s.busiest()
		for _, m := range s.members {
			if m.name == last {
				return m
			}
		}
	}
	return s.members[s.rng.IntN(len(s.members))]
}

// leader returns the worker that leads, of a queue that is divided in any of its partitions, or nil if Redis names none of the crew.
func (s *scene) leader() *member {
	ctx, key := s.t.Context(), "wc:{"+queueName+"}:"
	if s.parts > 0 {
		key = partKey(s.rng.IntN(s.parts))
	}
	_, id, _ := strings.Cut(s.client.HGet(ctx, key+"meta", "leader").Val(), ":")
	host := s.client.HGet(ctx, key+"worker:"+id, "host").Val() // ends in the number of the process
	for _, m := range s.members {
		if id != "" && strings.HasSuffix(host, fmt.Sprint("/", m.cmd.Process.Pid)) {
			return m
		}
	}
	return nil
}

// busiest returns the name of the worker that wrote last into its journal.
func (s *scene) busiest() string {
	var name string
	var last time.Time
	for _, journal := range s.journals() {
		lines := readLines(s.t, journal)
		if n := len(lines); n > 0 && lines[n-1].At.After(last) {
			name, last = lines[n-1].Worker, lines[n-1].At
		}
	}
	return name
}

func newInspector(t testing.TB, rdb redis.UniversalClient, name string) *queue.Inspector {
	t.Helper()
	inspector, err := queue.NewInspector(rdb, name)
	if err != nil {
		t.Fatal(err)
	}
	return inspector
}

func newClient(t testing.TB, rdb redis.UniversalClient, name string, config ...queue.ClientConfig) *queue.Client {
	t.Helper()
	client, err := queue.NewClient(rdb, name, config...)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
