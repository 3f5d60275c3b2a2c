package queue

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
)

var (
	modelSeed  = flag.Uint64("model.seed", 0, "seed of the model test; 0 for a new one each time")
	modelSteps = flag.Int("model.steps", 2000, "steps of the model test")
)

// TestModel does random things to a queue and to a plain model of it (world_test.go), and
// compares them after every step.
func TestModel(t *testing.T) {
	seed := *modelSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("go test -run TestModel -model.seed %d -model.steps %d", seed, *modelSteps)
	const perWorld = 500 // a new world now and then: lanes would grow for ever
	for round := 0; round*perWorld < *modelSteps && !t.Failed(); round++ {
		synctest.Test(t, func(t *testing.T) {
			m := newModelRun(t, rand.New(rand.NewPCG(seed, uint64(round))))
			for range perWorld {
				m.step()
				if t.Failed() {
					t.Fatalf("in world %d, after:\n%s", round, strings.Join(m.done[max(0, len(m.done)-15):], "\n"))
				}
			}
			m.drain()
		})
	}
}

// A modelRun is a queue and its model, in step.
type modelRun struct {
	hand
	rdb    redis.UniversalClient
	random *rand.Rand
	world  *world
	drops  string // newest entry of the drops stream that the model knows
	done   []string
	ids    int
}

func newModelRun(t *testing.T, random *rand.Rand) *modelRun {
	// Nothing expires here, and a log keeps what it ever needs: the rules change as they
	// can without making a difference between forgotten and never known.
	server := miniredis.NewMiniRedis()
	t.Cleanup(server.Close)
	client := redistest.MiniClient(t, server)
	world := newWorld(time.Duration(pick(random, 100, 1000, 5000)) * time.Millisecond)
	m := &modelRun{hand: newHand(t, client, world.policy()), rdb: client, random: random, world: world, drops: "-"}
	m.setPolicy()
	return m
}

func (m *modelRun) note(format string, args ...any) {
	m.done = append(m.done, time.Now().Format("05.000000 ")+fmt.Sprintf(format, args...))
}

// step does one random thing.
func (m *modelRun) step() {
	m.t.Helper()
	switch p := m.random.IntN(100); {
	case p < 30:
		m.offer()
	case p < 60:
		m.pull(1+m.random.IntN(8), time.Duration(m.random.IntN(3))*10*time.Millisecond)
	case p < 72:
		m.end()
	case p < 76:
		m.cancel()
	case p < 80:
		m.pause()
	case p < 82:
		m.setPolicy()
	default:
		d := time.Duration(m.random.IntN(400_000)) * time.Microsecond
		m.note("sleep %v", d)
		time.Sleep(d)
	}
	m.learnDrops()
	if err := m.world.checkExpired(); err != nil {
		m.t.Error(err)
	}
	m.compare()
}

func (m *modelRun) setPolicy() {
	m.world.leak = pick(m.random, 1, 2, 10, 100, 1000)
	m.world.spacing = time.Duration(pick(m.random, 1, 10, 90)) * time.Millisecond
	m.note("policy: leak %d/s, window %d/%v, spacing %v", m.world.leak, modelWindow, m.world.period, m.world.spacing)
	policies := Policies{Default: "p", Policies: map[string]Policy{"p": m.world.policy()}}
	if err := NewInspector(m.rdb, "q").SetPolicies(m.t.Context(), policies); err != nil {
		m.t.Fatal(err)
	}
}

func pick(random *rand.Rand, of ...int) int { return of[random.IntN(len(of))] }

func (m *modelRun) offer() {
	m.ids++
	job := Job{
		ID: fmt.Sprint("job-", m.ids), Tenant: fmt.Sprint("t", m.random.IntN(3)), User: fmt.Sprint("u", m.random.IntN(3)),
		Type: "x", Cost: 1 + m.random.IntN(2), Priority: Priority(m.random.IntN(3)), MaxRetry: 2,
	}
	if m.random.IntN(10) == 0 {
		job.NotBefore = time.Now().Add(time.Duration(m.random.IntN(1000)) * time.Millisecond)
	}
	if m.random.IntN(10) == 0 {
		job.Deadline = time.Now().Add(time.Duration(1+m.random.IntN(2000)) * time.Millisecond)
	}
	receipts, err := m.client.Enqueue(m.t.Context(), job)
	if err != nil {
		m.t.Fatal(err)
	}
	m.note("offer %s to %s:%s, cost %d, priority %d: %+v", job.ID, job.Tenant, job.User, job.Cost, job.Priority, receipts[0])
	if err := m.world.offer(job, receipts[0]); err != nil {
		m.t.Error(err)
	}
}

func (m *modelRun) pull(n int, lead time.Duration) {
	*m.pulls++
	reply, err := m.scripts.run(m.t.Context(), m.scripts.pull, "hand", n, lead.Microseconds(), time.Hour.Microseconds(),
		*m.pulls, *m.pulls-1).Slice()
	if err != nil {
		m.t.Fatal(err)
	}
	jobs, _, next, err := readPull(reply)
	if err != nil {
		m.t.Fatal(err)
	}
	m.world.mature()
	m.learnDrops()
	m.note("pull %d with lead %v: %d jobs, again in %v", n, lead, len(jobs), time.Until(next))
	for _, job := range jobs {
		m.note("  %s of %s:%s at +%v", job.job.ID, job.job.Tenant, job.job.User, time.Until(job.slot))
		if err := m.world.start(job); err != nil {
			m.t.Error(err)
		}
	}
	if err := m.world.nothingMore(lead, next, len(jobs) == n); err != nil {
		m.t.Error(err)
	}
}

// end lets a running job succeed, fail, be handed back, or be late.
func (m *modelRun) end() {
	token := m.world.anyRunning(m.random)
	if token == "" {
		return
	}
	job := m.world.running[token]
	switch m.random.IntN(4) {
	case 0:
		m.note("%s is done", job.id)
		if err := m.scripts.run(m.t.Context(), m.scripts.ack, token).Err(); err != nil {
			m.t.Fatal(err)
		}
		delete(m.world.running, token)
	case 1:
		delay := time.Duration(m.random.IntN(500)) * time.Millisecond
		outcome := m.outcome(m.scripts.fail, token, delay.Microseconds(), "no")
		m.note("%s has failed: outcome %d", job.id, outcome)
		if want := m.world.fail(token, delay); outcome != want {
			m.t.Errorf("failing: outcome %d, want %d", outcome, want)
		}
	case 2:
		m.note("%s is handed back", job.id)
		if err := m.scripts.run(m.t.Context(), m.scripts.release, "hand", token).Err(); err != nil {
			m.t.Fatal(err)
		}
		m.world.release(token)
	case 3:
		if job.slot.After(time.Now()) {
			return
		}
		outcome := m.outcome(m.scripts.admit, 0, token, job.slot.UnixMicro())
		m.note("%s is late: outcome %d", job.id, outcome)
		if want := m.world.admit(token); outcome != want {
			m.t.Errorf("late: outcome %d, want %d", outcome, want)
		}
	}
}

func (m *modelRun) cancel() {
	if m.ids == 0 {
		return
	}
	id := fmt.Sprint("job-", 1+m.random.IntN(m.ids))
	got, err := NewInspector(m.rdb, "q").Cancel(m.t.Context(), id)
	if err != nil {
		m.t.Fatal(err)
	}
	m.note("cancel %s: %v", id, got)
	if want := m.world.cancel(id); got != want {
		m.t.Errorf("cancelling %s: %v, want %v", id, got, want)
	}
}

func (m *modelRun) pause() {
	inspector := NewInspector(m.rdb, "q")
	tenant, user := fmt.Sprint("t", m.random.IntN(3)), fmt.Sprint("u", m.random.IntN(3))
	until := time.Now().Add(time.Duration(m.random.IntN(2)*m.random.IntN(1000)) * time.Millisecond)
	scope, err := "q", error(nil)
	switch m.random.IntN(3) {
	case 0:
		err = inspector.PauseQueue(m.t.Context(), until)
	case 1:
		scope, err = tenant, inspector.PauseTenant(m.t.Context(), tenant, until)
	case 2:
		scope, err = tenant+":"+user, inspector.PauseUser(m.t.Context(), tenant, user, until)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	m.note("pause %s for %v", scope, time.Until(until))
	m.world.paused[scope] = until
}

// learnDrops tells the model what was dropped, which asks whether that was right.
func (m *modelRun) learnDrops() {
	from := m.drops
	if from != "-" {
		from = "(" + from
	}
	entries, err := m.rdb.XRange(m.t.Context(), "wc:{q}:drops", from, "+").Result()
	if err != nil {
		m.t.Fatal(err)
	}
	for _, entry := range entries {
		m.drops = entry.ID
		field := fieldsOf(entry)
		m.note("  %s was dropped: %s", field("id"), field("reason"))
		if err := m.world.drop(field("id"), Reason(field("reason"))); err != nil {
			m.t.Error(err)
		}
	}
}

func (m *modelRun) compare() {
	for name, lane := range m.world.lanes {
		key := "wc:{q}:lane:" + strings.NewReplacer(":0", ":high", ":1", "", ":2", ":low").Replace(name)
		if n := int(m.rdb.LLen(m.t.Context(), key).Val()); n != len(lane) {
			m.t.Errorf("lane %s holds %d jobs, want %d", name, n, len(lane))
		}
	}
	got := m.stats()
	waiting, later := m.world.count()
	if int(got.Waiting) != waiting || int(got.Later) != later || int(got.Running) != len(m.world.running) {
		m.t.Errorf("%d waiting, %d later, %d running; want %d, %d, %d",
			got.Waiting, got.Later, got.Running, waiting, later, len(m.world.running))
	}
}

// drain lets everything run to its end: nothing may be left.
func (m *modelRun) drain() {
	m.world.paused = map[string]time.Time{}
	must := func(err error) {
		if err != nil {
			m.t.Fatal(err)
		}
	}
	must(m.rdb.Del(m.t.Context(), "wc:{q}:paused").Err())
	for range 1000 {
		time.Sleep(time.Minute)
		m.pull(20, 0)
		m.learnDrops()
		tokens := slices.Collect(func(yield func(string) bool) {
			for token := range m.world.running {
				if !yield(token) {
					return
				}
			}
		})
		must(m.scripts.run(m.t.Context(), m.scripts.ack, tokenArgs(tokens)...).Err())
		clear(m.world.running)
		if waiting, later := m.world.count(); waiting+later == 0 {
			m.compare()
			return
		}
	}
	m.t.Error("jobs are left that never start")
}
