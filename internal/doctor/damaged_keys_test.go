package doctor

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	keys "github.com/waterclock/waterclock/queue/doctor"
	"github.com/waterclock/waterclock/throttle"
)

// key returns a key of the queue.
func key(rest string) string { return "wc:{" + name + "}:" + rest }

// A damage is made while two workers are at work, and three jobs of a user wait for an hour.
type damage struct {
	make  func(t *testing.T, s *scene)
	finds []string // kinds, and the keys behind the prefix; WORKER is the first worker's name
}

// do returns a damage that is one command.
func do(args ...any) func(*testing.T, *scene) {
	return func(t *testing.T, s *scene) { s.must(s.client.Do(t.Context(), args...).Err()) }
}

// spoil puts a text where something else belongs.
func spoil(rest string) func(*testing.T, *scene) {
	return do("SET", key(rest), "something else")
}

// spoilOfWorker puts a text into a key that each worker has, of the first one.
func spoilOfWorker(class string) func(*testing.T, *scene) {
	return func(t *testing.T, s *scene) { spoil(class+":"+s.firstWorker())(t, s) }
}

// firstWorker returns the name of a worker that lives.
func (s *scene) firstWorker() string {
	s.t.Helper()
	workers, err := s.client.ZRange(s.t.Context(), key("workers"), 0, 0).Result()
	s.must(err)
	return workers[0]
}

const farAhead = 1000 * time.Hour

func inFuture(s *scene) int64 {
	now, err := s.client.Time(s.t.Context()).Result()
	s.must(err)
	return now.Add(farAhead).UnixMicro()
}

// damages are all kinds that are mended.
func damages() map[string]damage {
	all := map[string]damage{
		"tenants are gone":      {do("DEL", key("tenants")), []string{"tenant tenants"}},
		"an index is gone":      {do("DEL", key("due:slow")), []string{"lane lane:slow:u"}},
		"meta is gone":          {do("DEL", key("meta")), []string{"counters meta", "meta meta"}},
		"a member without lane": {do("ZADD", key("due:slow"), 1<<52, "ghost"), []string{"index due:slow"}},
		"a payload of nobody":   {do("SET", key("body:ghost"), "x"), []string{"payload body:ghost"}},
		"an ID of nobody":       {do("SET", key("id:ghost"), "slow:u:1"), []string{"id id:ghost"}},
		"too many started":      {do("HINCRBY", key("meta"), "started", 93), []string{"counters meta"}},
		"too many came":         {do("HINCRBY", key("tenant:slow"), "in", 7), []string{"counters tenant:slow"}},
		"a counter is a text":   {do("HSET", key("tenant:slow"), "in", "many"), []string{"counters tenant:slow"}},
		"a total is a text":     {do("HSET", key("meta"), "back", "1.5"), []string{"counters meta"}},
		"no policies in meta":   {do("HDEL", key("meta"), "policies"), []string{"meta meta"}},
		"pauses unseen":         {pauseUnseen, []string{"meta meta"}},
		"claims of nobody":      {claimsOfNobody, []string{"claims running:ghost"}},
		"a worker, unknown":     {unknownWorker, []string{"worker worker:ghost"}},
		"a lane's bound":        {lateBound("due:slow", "u"), []string{"bound due:slow"}},
		"a tenant's bound":      {lateBound("tenants", "slow"), []string{"bound tenants"}},
		"a user's state":        {lateState("u:slow:u"), []string{"state state:u:slow:u"}},
		"a job without a place": {placeLost, []string{"fold fold:slow:u"}},
		"a place without job":   {jobLost, []string{"stub lane:slow:u"}},
		"a backlog of nobody":   {do("ZADD", key("backlogs"), 5, "u:slow:u"), []string{"counters backlogs"}},
		"a lane is a text":      {spoil("lane:slow:odd"), []string{"type lane:slow:odd"}},
	}
	for _, rest := range []string{"tenants", "notices", "workers", "later", "dead", "meta", "refused", "paused", "cancelled", "backlogs"} {
		all[rest+", a text"] = damage{spoil(rest), []string{"type " + rest}}
	}
	for _, class := range []string{"running", "mailbox", "worker"} {
		all[class+" of a worker, a text"] = damage{spoilOfWorker(class), []string{"type " + class + ":WORKER"}}
	}
	return all
}

func pauseUnseen(t *testing.T, s *scene) {
	s.must(s.inspector.Pause(t.Context(), queue.Pause{Scope: queue.ScopeTenant, Tenant: "other", Until: time.Now().Add(time.Hour)}))
	do("HSET", key("meta"), "paused", 0)(t, s)
}

// claimsOfNobody moves a waiting job into the claims of a worker that never was.
func claimsOfNobody(t *testing.T, s *scene) {
	ctx := t.Context()
	job, err := s.client.LPop(ctx, key("lane:slow:u")).Result()
	s.must(err)
	slot := time.Now().Add(-time.Minute).UnixMicro()
	s.must(s.client.HSet(ctx, key("running:ghost"), fmt.Sprintf("%s %d slow:u:1", job[:13], slot), job).Err())
	for _, k := range []string{"meta", "tenant:slow"} {
		s.must(s.client.HIncrBy(ctx, key(k), "started", 1).Err())
	}
	s.must(s.client.Set(ctx, key("id:"+idOf(job)), "started", time.Hour).Err())
}

// idOf finds the ID in the bytes of a job.
func idOf(job string) string {
	at := strings.Index(job, "job-")
	return job[at : at+len("job-0")]
}

func unknownWorker(t *testing.T, s *scene) {
	do("ZADD", key("workers"), inFuture(s), "ghost")(t, s)
}

func lateBound(index, member string) func(*testing.T, *scene) {
	return func(t *testing.T, s *scene) { do("ZADD", key(index), inFuture(s), member)(t, s) }
}

func lateState(scope string) func(*testing.T, *scene) {
	return func(t *testing.T, s *scene) {
		set := rules.Compile(0, rules.Rule{Kind: rules.Window, Limit: 2, Period: time.Hour})
		var state rules.State
		set.Spend(&state, rules.At(time.Now().UnixMicro()), 1, true)
		set.Spend(&state, rules.At(inFuture(s)), 1, true)
		do("SET", key("state:"+scope), string(state.Append(nil)))(t, s)
	}
}

// placeLost takes the place of a job under a collapse key away.
func placeLost(t *testing.T, s *scene) {
	s.offer(queue.Job{ID: "job-5", Tenant: "slow", User: "u", Type: "x", CollapseKey: "k"})
	do("LREM", key("lane:slow:u"), 1, "=k")(t, s)
}

// jobLost takes the job under a collapse key away.
func jobLost(t *testing.T, s *scene) {
	s.offer(queue.Job{ID: "job-5", Tenant: "slow", User: "u", Type: "x", CollapseKey: "k"})
	do("DEL", key("fold:slow:u"))(t, s)
	do("DEL", key("id:job-5"))(t, s)
}

func (s *scene) offer(jobs ...queue.Job) {
	s.t.Helper()
	receipts, err := s.offers.Enqueue(s.t.Context(), jobs...)
	s.must(err)
	for _, r := range receipts {
		if r.Status != queue.Accepted && r.Status != queue.Duplicate {
			s.t.Fatalf("%+v", r)
		}
	}
}

func (s *scene) examine() []keys.Damage {
	s.t.Helper()
	found, err := s.keys.Examine(s.t.Context())
	s.must(err)
	return found
}

// has reports whether a kind of damage was found at a key.
func has(found []keys.Damage, what string) bool {
	kind, rest, _ := strings.Cut(what, " ")
	for _, d := range found {
		if d.Kind == kind && d.Key == key(rest) && d.Problem != "" {
			return true
		}
	}
	return false
}

// Each kind of damage is found, and mended while workers live. Then the queue is sound, and all
// jobs that were not destroyed start.
func TestDamage(t *testing.T) {
	t.Parallel()
	for name, d := range damages() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mendOne(t, d)
		})
	}
}

func mendOne(t *testing.T, d damage) {
	s := newScene(t)
	s.policies()
	s.work(2)
	for i := range 5 {
		s.offer(queue.Job{ID: fmt.Sprint("job-", i), Tenant: "slow", User: "u", Type: "x"})
	}
	redistest.Eventually(t, 20*time.Second, "two jobs have started and three wait", func() bool {
		stats, err := s.inspector.Stats(t.Context())
		return err == nil && s.total() == 2 && stats.Waiting == 3 && stats.Running == 0
	})
	if found := s.examine(); len(found) > 0 {
		t.Fatalf("before: %+v", found)
	}
	first := s.firstWorker()
	for i, want := range d.finds {
		d.finds[i] = strings.ReplaceAll(want, "WORKER", first)
	}
	d.make(t, s)
	found := s.examine()
	for _, want := range d.finds {
		if !has(found, want) {
			t.Errorf("no %s in %+v", want, found)
		}
	}
	mended, left, err := s.keys.Repair(t.Context())
	s.must(err)
	for _, want := range d.finds {
		if !has(mended, want) {
			t.Errorf("no %s among the mended %+v", want, mended)
		}
	}
	if len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
	s.goesOn(6)
}

func (s *scene) total() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, starts := range s.starts {
		n += starts
	}
	return n
}

// goesOn lifts the limits, offers one job more, and waits until all have started once.
func (s *scene) goesOn(jobs int) {
	s.t.Helper()
	ctx := s.t.Context()
	s.must(s.inspector.SetPolicies(ctx, queue.Policies{Default: "p", Policies: map[string]queue.Policy{"p": {
		User: []throttle.Rule{throttle.Window(100, time.Hour)},
	}}}))
	s.offer(queue.Job{ID: "job-5", Tenant: "slow", User: "u", Type: "x"})
	redistest.Eventually(s.t, 30*time.Second, fmt.Sprint(jobs, " jobs have started"), func() bool {
		stats, err := s.inspector.Stats(ctx)
		return err == nil && s.total() >= jobs && stats.Waiting == 0 && stats.Running == 0
	})
	if n := s.total(); n != jobs {
		s.t.Errorf("%d starts of %d jobs: %v", n, jobs, s.starts)
	}
	if found := s.examine(); len(found) > 0 {
		s.t.Errorf("afterwards: %+v", found)
	}
}

// What cannot be mended safely is found, and left as it is, with what is to be done.
func TestLeft(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]damage{
		"Redis's clock was set back": {func(t *testing.T, s *scene) { do("HSET", key("meta"), "stamp", inFuture(s))(t, s) }, []string{"clock meta"}},
		"a claim far ahead": {func(t *testing.T, s *scene) {
			do("HSET", key("running:w"), fmt.Sprintf("0000000000001 %d t:u:1", inFuture(s)), "x")(t, s)
			do("ZADD", key("workers"), time.Now().Add(time.Minute).UnixMicro(), "w")(t, s)
			do("HSET", key("worker:w"), "places", 1)(t, s)
		}, []string{"claims running:w"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.must(s.client.HSet(t.Context(), key("meta"), "schema", "2").Err())
			d.make(t, s)
			mended, left, err := s.keys.Repair(t.Context())
			s.must(err)
			if len(mended) > 0 || len(left) != 1 || !has(left, d.finds[0]) || left[0].Repair != "" {
				t.Errorf("mended %+v, left %+v", mended, left)
			}
		})
	}
}

// A queue that never was is sound, and stays unwritten.
func TestNothingThere(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		if found, err := Examine(context.Background(), client, "never"); len(found) > 0 || err != nil {
			t.Errorf("%+v, %v", found, err)
		}
		if n := client.DBSize(context.Background()).Val(); n != 0 {
			t.Errorf("%d keys", n)
		}
	})
}

// In a cluster the keys of the queue are at one node.
func TestDamageInACluster(t *testing.T) {
	t.Parallel()
	sample.Slow(t)
	ctx, client := t.Context(), redistest.StartCluster(t, 2)
	for _, queue := range []string{"a", "b", "c", "d[*?]"} {
		lane := "wc:{" + queue + "}:lane:t:u"
		if err := client.RPush(ctx, lane, "=k").Err(); err != nil {
			t.Fatal(err)
		}
		found, err := Examine(ctx, client, queue)
		if err != nil || len(found) != 3 || found[0].What != "lane "+lane {
			t.Errorf("%s: %+v, %v", queue, found, err)
		}
	}
}
