package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/internal/store"
	"github.com/waterclock/waterclock/throttle"
)

// attendees are the jobs that run, by who counts them.
type attendees struct {
	mu         sync.Mutex
	now, most  map[string]int
	busy       map[string]time.Duration // places times how long they were taken
	done       map[string]int
	first, end time.Time
}

func newAttendees() *attendees {
	return &attendees{now: make(map[string]int), most: make(map[string]int), busy: make(map[string]time.Duration), done: make(map[string]int)}
}

func (c *attendees) enter(who ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first.IsZero() {
		c.first = time.Now()
	}
	for _, one := range who {
		c.now[one]++
		c.most[one] = max(c.most[one], c.now[one])
	}
}

func (c *attendees) leave(after time.Duration, who ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end = time.Now()
	for _, one := range who {
		c.now[one]--
		c.done[one]++
		c.busy[one] += after
	}
}

// used returns how much of so many places was taken, on average.
func (c *attendees) used(who string, places int) float64 {
	return float64(c.busy[who]) / float64(c.end.Sub(c.first)) / float64(places)
}

// handler lets jobs run for some time.
func (c *attendees) handler(takes time.Duration) *recorder {
	return &recorder{then: func(ctx context.Context, info queue.Info) error {
		who := []string{"all", info.Tenant, info.Type, "domain " + info.Keys["domain"]}
		c.enter(who...)
		time.Sleep(takes)
		c.leave(takes, who...)
		if info.Type == "fails first" && info.Attempt == 1 {
			return errors.New("not yet")
		}
		return nil
	}}
}

// ran returns how many jobs have ended, of each of them.
func (c *attendees) ran(who ...string) (n []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range who {
		n = append(n, c.done[one])
	}
	return n
}

// atMost fails the test if more have run at once.
func (c *attendees) atMost(t *testing.T, who string, places int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.most[who] > places {
		t.Errorf("%d of %s ran at once, of %d", c.most[who], who, places)
	}
}

// placesLeased returns the places that partitions have.
func placesLeased(t *testing.T, client redis.UniversalClient) map[string]string {
	all := client.HGetAll(t.Context(), "wc:{push}:places").Val()
	delete(all, "%made")
	return all
}

// The concurrency limit of a queue holds over its partitions, and its places are used.
func TestConcurrencyOfADividedQueue(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ places, tenants int }{{10, 20}, {4, 30}, {40, 5}} {
		t.Run(fmt.Sprintf("%d places, %d tenants", test.places, test.tenants), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client := redistest.Mini(t)
				i := newInspector(t, client, "push")
				must(t, i.SetPolicies(t.Context(), queue.Policies{
					Partitions: 8, Concurrency: queue.Concurrency{Jobs: test.places}, Default: "p", Policies: map[string]queue.Policy{"p": {}},
				}))
				jobs := tenantJobs(test.tenants, 1200)
				for k := range jobs {
					if k%10 == 0 {
						jobs[k].Type = "fails first"
					}
				}
				_, err := newClient(t, client, "push").Enqueue(t.Context(), jobs...)
				must(t, err)
				c := newAttendees()
				runWorker(t, client, c.handler(50*time.Millisecond), queue.WorkerConfig{Concurrency: 100, RetryDelay: func(int, error, *asynq.Task) time.Duration { return 20 * time.Millisecond }})
				time.Sleep(time.Second)
				why, err := i.Explain(t.Context(), "school-0", "teacher")
				must(t, err)
				if k := slices.IndexFunc(why.Rules, func(r queue.RuleState) bool { return r.Scope == queue.ScopeQueue }); k < 0 ||
					why.Rules[k].Limit != test.places || why.Rules[k].Running < test.places*8/10 || why.Rules[k].Running > test.places {
					t.Errorf("the queue's places: %+v", why.Rules)
				}
				time.Sleep(1320*50*time.Millisecond/time.Duration(test.places) + 3*time.Second)
				if n := c.ran("all")[0]; n != 1320 {
					t.Errorf("%d attempts of 1320 have ended", n)
				}
				c.atMost(t, "all", test.places)
				if used := c.used("all", test.places); used < 0.85 {
					t.Errorf("%.1f %% of the places were used", 100*used)
				}
				time.Sleep(time.Second)
				if left := placesLeased(t, client); len(left) > 0 {
					t.Errorf("%v places are leased where nothing runs", left)
				}
			})
		})
	}
}

// A share of the places is one of all workers of the queue, wherever they take part: a worker that stops takes its places with it.
func TestSharesOfThePlacesOfADividedQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		i := newInspector(t, client, "push")
		must(t, i.SetPolicies(t.Context(), queue.Policies{
			Partitions: 8, Concurrency: queue.Concurrency{Percent: 30}, Default: "p",
			Policies: map[string]queue.Policy{"p": {TenantConcurrency: queue.Concurrency{Percent: 12}}},
		}))
		_, err := newClient(t, client, "push").Enqueue(t.Context(), tenantJobs(3, 9000)...)
		must(t, err)
		c := newAttendees()
		var stop func()
		for range 5 {
			stop = runWorker(t, client, c.handler(50*time.Millisecond), queue.WorkerConfig{Concurrency: 20})
		}
		fills := func(all, tenant int) {
			t.Helper()
			time.Sleep(5 * time.Second)
			c.mu.Lock()
			c.most = make(map[string]int)
			c.mu.Unlock()
			time.Sleep(2 * time.Second)
			for who, places := range map[string]int{"all": all, "school-0": tenant, "school-1": tenant, "school-2": tenant} {
				if c.atMost(t, who, places); c.most[who] < places*2/3 {
					t.Errorf("%d of %s ran at once, of %d", c.most[who], who, places)
				}
			}
			why, err := i.Explain(t.Context(), "school-0", "teacher")
			must(t, err)
			for scope, most := range map[queue.Scope]int{queue.ScopeQueue: all, queue.ScopeTenant: tenant} {
				if k := slices.IndexFunc(why.Rules, func(r queue.RuleState) bool { return r.Scope == scope }); k < 0 || why.Rules[k].Limit != most {
					t.Errorf("want %d places of %s: %+v", most, scope, why.Rules)
				}
			}
		}
		fills(30, 12)
		stop()
		fills(24, 9)
	})
}

// Who comes while another partition has all places gets its part soon, by the weights of tenants, and a lower limit holds once so many jobs have
// ended.
func TestPlacesAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		i := newInspector(t, client, "push")
		p := queue.Policies{
			Partitions: 4, Concurrency: queue.Concurrency{Jobs: 20}, Default: "p",
			Policies: map[string]queue.Policy{"p": {}, "more": {Weight: 4}}, Tenants: map[string]string{"heavy": "more"},
		}
		must(t, i.SetPolicies(t.Context(), p))
		of := func(tenant string, n int) {
			t.Helper()
			jobs := make([]queue.Job, n)
			for k := range jobs {
				jobs[k] = queue.Job{Tenant: tenant, User: fmt.Sprint(k % 50), Type: "push"}
			}
			_, err := newClient(t, client, "push").Enqueue(t.Context(), jobs...)
			must(t, err)
		}
		light := inAnotherPartition("heavy", 4)
		of(light, 4000)
		c := newAttendees()
		runWorker(t, client, c.handler(40*time.Millisecond), queue.WorkerConfig{Concurrency: 100})
		time.Sleep(2 * time.Second)
		if n := c.ran(light)[0]; n < 850 {
			t.Errorf("%d jobs ended in two seconds, with 20 places for 40 ms each", n)
		}
		of("heavy", 4000)
		time.Sleep(time.Second)
		before := c.ran(light, "heavy")
		time.Sleep(4 * time.Second)
		after := c.ran(light, "heavy")
		if l, h := after[0]-before[0], after[1]-before[1]; l+h < 1850 || float64(h)/float64(l) < 3 || float64(h)/float64(l) > 5 {
			t.Errorf("%d and %d jobs of weights 1 and 4 in four seconds", l, h)
		}
		c.atMost(t, "all", 20)
		p.Concurrency.Jobs = 5
		must(t, i.SetPolicies(t.Context(), p))
		time.Sleep(500 * time.Millisecond)
		c.mu.Lock()
		c.most = make(map[string]int)
		c.mu.Unlock()
		time.Sleep(2 * time.Second)
		c.atMost(t, "all", 5)
		if n := c.ran("all")[0] - after[0] - after[1]; n < 200 {
			t.Errorf("%d jobs ended since the limit is 5", n)
		}
	})
}

// inAnotherPartition returns the name of a tenant that is in another partition than some tenant.
func inAnotherPartition(than string, of int) string {
	for k := 0; ; k++ {
		if name := fmt.Sprint("light-", k); store.PartitionOf(name, of) != store.PartitionOf(than, of) {
			return name
		}
	}
}

// Limits by name whose key has no tenant hold over partitions with rules and places together, for each value, and where several of them count
// a job.
func TestLimitsWithPlacesOfADividedQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		must(t, newInspector(t, client, "push").SetPolicies(t.Context(), queue.Policies{
			Partitions: 4, Concurrency: queue.Concurrency{Jobs: 30}, Queue: []throttle.Rule{throttle.Leak(400, time.Second)},
			Limits: map[string]queue.Limit{
				"domain": {Key: []string{"keys.domain"}, Rules: []throttle.Rule{throttle.Window(40, time.Second)}, Concurrency: queue.Concurrency{Jobs: 3},
					Each: map[string]queue.Limit{"big": {Concurrency: queue.Concurrency{Jobs: 8}}}},
				"bulk": {Types: []string{"bulk"}, Concurrency: queue.Concurrency{Jobs: 5}},
			},
			Default: "p", Policies: map[string]queue.Policy{"p": {}},
		}))
		jobs := tenantJobs(16, 900)
		for k := range jobs {
			jobs[k].Type = []string{"bulk", "push"}[k%2]
			jobs[k].Keys = map[string]string{"domain": []string{"big", "small", fmt.Sprint("d", k%7)}[k%3]}
		}
		_, err := newClient(t, client, "push").Enqueue(t.Context(), jobs...)
		must(t, err)
		c := newAttendees()
		runWorker(t, client, c.handler(30*time.Millisecond), queue.WorkerConfig{Concurrency: 100})
		time.Sleep(20 * time.Second)
		if n := c.ran("all", "bulk", "domain big", "domain small"); !slices.Equal(n, []int{900, 450, 300, 300}) {
			t.Errorf("%v jobs have ended", n)
		}
		c.atMost(t, "all", 30)
		c.atMost(t, "bulk", 5)
		c.atMost(t, "domain big", 8)
		c.atMost(t, "domain small", 3)
		if c.most["bulk"] < 5 || c.most["domain big"] < 8 || c.most["domain small"] < 3 {
			t.Errorf("the limits have not bound: %v", c.most)
		}
	})
}
