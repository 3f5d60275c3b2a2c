package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/doctor"
	"github.com/waterclock/waterclock/throttle"
)

// A capacityModel offers jobs at random to a queue whose users and domains have capacities, while a worker starts some of
// them, fails and dies, and operators purge, cancel and revive. Its judge counts what waits by the jobs themselves: it reads no
// label and no counter.
type capacityModel struct {
	t       *testing.T
	client  redis.UniversalClient
	rand    *rand.Rand
	in      *queue.Inspector
	unit    time.Duration // of rules and handlers
	ids     int
	tenants int // capacity of the tenant
	users   int // of each user
	domains map[string]int
	did     map[string]int // how often what has happened
}

// setPolicies bounds all backlogs anew: a domain without a capacity of its own has that of the others, and "free" has none.
func (c *capacityModel) setPolicies() {
	c.tenants, c.users = 15+c.rand.IntN(20), 4+c.rand.IntN(6)
	c.domains = map[string]int{"big": 6 + c.rand.IntN(9), "small": 2 + c.rand.IntN(4)}
	p := policies(queue.Policy{
		Capacity: c.tenants, UserCapacity: c.users,
		User: []throttle.Rule{throttle.Window(2, 10*c.unit)},
	})
	p.Limits = map[string]queue.Limit{
		"domain": {
			Key: []string{"keys.domain"}, Capacity: c.domains["small"], Rules: []throttle.Rule{throttle.Leak(1, c.unit)},
			Each: map[string]queue.Limit{"big": {Capacity: c.domains["big"]}, "free": {Concurrency: queue.Concurrency{Jobs: 100}}},
		},
	}
	setPolicies(c.t, c.client, p)
}

// A count is what waits.
type count struct {
	all, users, domains map[string]int // tenants, users, and domains with a capacity
	folds               map[string]bool
}

// waits reads all jobs in lanes, and the backlogs, at one instant. Jobs say in their payloads, and collapse keys in
// themselves, whose they are.
func (c *capacityModel) waits() (of count, backlogs map[string]int) {
	const script = `local jobs, folds = {}, {}
		for _, key in ipairs(redis.call('KEYS', 'wc:{push}:lane:*')) do
			for _, job in ipairs(redis.call('LRANGE', key, 0, -1)) do jobs[#jobs + 1] = job end
		end
		for _, key in ipairs(redis.call('KEYS', 'wc:{push}:fold:*')) do
			for _, name in ipairs(redis.call('HKEYS', key)) do folds[#folds + 1] = name end
		end
		return {jobs, folds, redis.call('ZRANGE', 'wc:{push}:backlogs', 0, -1, 'WITHSCORES')}`
	c.t.Helper()
	reply, err := redis.NewScript(script).Run(c.t.Context(), c.client, []string{"wc:{push}:backlogs"}).Slice()
	must(c.t, err)
	texts := func(i int) (all []string) {
		for _, text := range reply[i].([]any) {
			all = append(all, text.(string))
		}
		return all
	}
	of = count{make(map[string]int), make(map[string]int), make(map[string]int), make(map[string]bool)}
	backlogs = make(map[string]int)
	want := make(map[string]int)
	for _, job := range texts(0) {
		who := whose.FindStringSubmatch(job)
		if who == nil {
			c.t.Fatalf("whose is %q?", job)
		}
		of.all["school"]++
		of.users[who[1]]++
		if who[2] != "" {
			want["u:school:"+who[1]]++
		}
		if _, bounded := c.domains[who[2]]; bounded {
			of.domains[who[2]]++
			want["l:domain:"+who[2]]++
		}
	}
	for _, name := range texts(1) {
		of.folds[name] = true
	}
	words := texts(2)
	for i := 0; i < len(words); i += 2 {
		backlogs[words[i]], err = strconv.Atoi(words[i+1])
		must(c.t, err)
	}
	if diff := cmp.Diff(want, backlogs); diff != "" {
		c.t.Fatalf("backlogs (-want +got):\n%s", diff)
	}
	return of, backlogs
}

var whose = regexp.MustCompile(`<(\w+)@(\w*)>`)

// job returns a random job. One of a user may have no domain, and wait in the lane that every user has.
func (c *capacityModel) job() queue.Job {
	user, domain := []string{"ann", "bob", "cid"}[c.rand.IntN(3)], []string{"", "big", "big", "small", "free"}[c.rand.IntN(5)]
	c.ids++
	j := named(strconv.Itoa(c.ids), user)
	mark := "<" + user + "@" + domain + ">"
	j.Payload, j.Priority = []byte(mark), queue.Priority(c.rand.IntN(3)-1)
	j.MaxAttempts = c.rand.IntN(3)
	if domain != "" {
		j.Keys = map[string]string{"domain": domain}
	}
	switch c.rand.IntN(8) {
	case 0:
		j.CollapseKey = mark
	case 1:
		j.NotBefore = time.Now().Add(time.Duration(1+c.rand.IntN(20)) * c.unit)
	}
	return j
}

// want returns what has to become of a job, and counts it.
func (c *capacityModel) want(of count, j queue.Job) string {
	domain := j.Keys["domain"]
	most, bounded := c.domains[domain]
	switch {
	case !j.NotBefore.IsZero():
		return "ok"
	case j.CollapseKey != "" && of.folds[j.CollapseKey]:
		return "ok"
	case of.all["school"] >= c.tenants:
		return "tenant"
	case of.users[j.User] >= c.users:
		return "user " + j.User
	case bounded && of.domains[domain] >= most:
		return "limit domain (" + domain + ")"
	}
	of.all["school"]++
	of.users[j.User]++
	if bounded {
		of.domains[domain]++
	}
	if j.CollapseKey != "" {
		of.folds[j.CollapseKey] = true
	}
	return "ok"
}

// offer offers some jobs at once. If nothing starts meanwhile, it is known what has to become of them.
func (c *capacityModel) offer(quiet bool) {
	var jobs []queue.Job
	var want []string
	of, _ := c.waits()
	for range 1 + c.rand.IntN(8) {
		j := c.job()
		jobs, want = append(jobs, j), append(want, c.want(of, j))
	}
	got := outcomes(enqueue(c.t, c.client, jobs...))
	due := slices.ContainsFunc(jobs, func(j queue.Job) bool { return !j.NotBefore.IsZero() && !j.NotBefore.After(time.Now()) }) // by now
	if wanted := strings.Join(want, " | "); quiet && !due && got != wanted {
		c.t.Fatalf("got  %s\nwant %s\nof %+v", got, wanted, jobs)
	}
	for word := range strings.SplitSeq(got, " | ") {
		c.did[strings.SplitN(word, " ", 2)[0]]++
	}
}

// act does something at random.
func (c *capacityModel) act(quiet bool) {
	ctx := c.t.Context()
	switch n := c.rand.IntN(20); {
	case n < 12:
		c.offer(quiet)
	case n < 15 && c.ids > 0:
		_, err := c.in.Cancel(ctx, strconv.Itoa(1+c.rand.IntN(c.ids)))
		must(c.t, err)
	case n == 15:
		n, err := c.in.Purge(ctx, "school")
		must(c.t, err)
		c.did["purged"] += n
	case n == 16:
		c.setPolicies()
	default:
		dead, err := c.in.Dead(ctx, "", 3)
		must(c.t, err)
		for _, d := range dead {
			n, err := c.in.Revive(ctx, d.Entry)
			must(c.t, err)
			c.did["revived"] += n
		}
	}
	c.waits()
}

// handler fails at random, for a while or for good.
func (c *capacityModel) handler(seed uint64) *recorder {
	random := rand.New(rand.NewPCG(seed, 9))
	r := &recorder{}
	r.then = func(ctx context.Context, _ queue.Info) error {
		r.mu.Lock()
		n := random.IntN(4)
		r.mu.Unlock()
		if n == 0 {
			return errors.New("not now")
		}
		if n == 1 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(2 * c.unit):
			}
		}
		return nil
	}
	return r
}

// end lets all that waits start, and asks the doctor.
func (c *capacityModel) end() {
	for {
		if n, err := c.in.Purge(c.t.Context(), "school"); n == 0 || err != nil {
			must(c.t, err)
			break
		}
	}
	if _, backlogs := c.waits(); len(backlogs) > 0 {
		c.t.Errorf("left: %v", backlogs)
	}
	c.examine()
	c.countEnds()
}

func (c *capacityModel) countEnds() {
	stats := stats(c.t, c.client)
	c.did["done"] = max(c.did["done"], int(stats.Done))
	c.did["failed"] = max(c.did["failed"], int(stats.Failed))
}

func (c *capacityModel) examine() {
	c.t.Helper()
	d, err := doctor.New(c.client, "push")
	must(c.t, err)
	found, err := d.Examine(c.t.Context())
	must(c.t, err)
	for _, damage := range found {
		c.t.Errorf("the doctor found %+v", damage)
	}
}

// unseen returns what can happen and has not.
func unseen(did map[string]int) (all []string) {
	for _, what := range []string{"ok", "tenant", "user", "limit", "purged", "revived", "done", "failed"} {
		if did[what] == 0 {
			all = append(all, what)
		}
	}
	return all
}

// untilSeen calls a round at least so many times, and up to ten times as often until all that can happen has happened.
func untilSeen(t *testing.T, rounds int, did map[string]int, round func()) {
	for n := 0; n < rounds || n < 10*rounds && len(unseen(did)) > 0; n++ {
		round()
	}
	t.Logf("%v", did)
	if never := unseen(did); len(never) > 0 {
		t.Errorf("never happened: %v", never)
	}
}

func newCapacityModel(t *testing.T, client redis.UniversalClient, seed uint64, unit time.Duration, did map[string]int) *capacityModel {
	c := &capacityModel{t: t, client: client, unit: unit, did: did, rand: rand.New(rand.NewPCG(seed, 23)), in: newInspector(t, client, "push")}
	c.setPolicies()
	return c
}

// Capacities hold exactly, whatever else happens, and what they count is what waits. Workers die, and what they had waits
// again.
func TestCapacitiesWhateverHappens(t *testing.T) {
	t.Parallel()
	random, did := sample.Rand(t, sample.SeedOf(t)), make(map[string]int)
	untilSeen(t, sample.Size(3, 4, 200), did, func() {
		seed := random.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newMini(t)
				c := newCapacityModel(t, redistest.MiniClient(t, server), seed, time.Second, did)
				for range 6 {
					lost := make(chan struct{})
					stop := runWorker(t, clientUntil(t, server, lost), c.handler(seed), queue.WorkerConfig{
						Concurrency: 3, Lease: 2 * time.Second, ShutdownTimeout: time.Nanosecond,
						RetryDelay: func(n int, _ error, _ *asynq.Task) time.Duration { return time.Duration(n) * time.Second },
					})
					for range 40 {
						synctest.Wait()
						c.act(true)
						time.Sleep(time.Duration(c.rand.IntN(1500)) * time.Millisecond)
					}
					c.examine()
					close(lost)
					stop()
				}
				c.end()
			})
		})
	})
}

// The same on a real Redis: while a worker is at work what waits is counted, and without one capacities are judged.
func TestCapacitiesOnRedis(t *testing.T) {
	t.Parallel()
	client, seed, did := redistest.Start(t).Client(t), sample.SeedOf(t), make(map[string]int)
	c := newCapacityModel(t, client, seed, 10*time.Millisecond, did)
	untilSeen(t, sample.Size(5, 10, 100), did, func() {
		for range 20 {
			c.act(true)
		}
		stop := runWorker(t, client, c.handler(seed), queue.WorkerConfig{
			Concurrency: 3, ShutdownTimeout: time.Nanosecond, RetryDelay: func(int, error, *asynq.Task) time.Duration { return c.unit },
		})
		for range 20 {
			before := stats(t, client)
			c.act(false)
			redistest.Eventually(t, 20*time.Second, "something ends, if something waits", func() bool {
				s := stats(t, client)
				return s.Waiting == 0 || s.Done+s.Failed > before.Done+before.Failed
			})
		}
		stop()
		c.countEnds()
	})
	c.end()
}
