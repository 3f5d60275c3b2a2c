package queue_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
)

// Attendees count who is in it at once.
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
		who := []string{"all", info.Tenant, info.Type}
		c.enter(who...)
		time.Sleep(takes)
		c.leave(takes, who...)
		return nil
	}}
}

// The concurrency limit of a queue holds over its partitions, its places are used, and partitions with the same demand get as many.
func TestConcurrencyOfADividedQueue(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ places, tenants int }{{10, 20}, {4, 30}, {40, 5}} {
		t.Run(fmt.Sprintf("%d places, %d tenants", test.places, test.tenants), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client := redistest.Mini(t)
				must(t, newInspector(t, client, "push").SetPolicies(t.Context(), queue.Policies{
					Partitions: 8, Concurrency: queue.Concurrency{Jobs: test.places}, Default: "p", Policies: map[string]queue.Policy{"p": {}},
				}))
				_, err := newClient(t, client, "push").Enqueue(t.Context(), tenantJobs(test.tenants, 1200)...)
				must(t, err)
				c := newAttendees()
				runWorker(t, client, c.handler(50*time.Millisecond), queue.WorkerConfig{Concurrency: 100})
				time.Sleep(1200*50*time.Millisecond/time.Duration(test.places) + 3*time.Second)
				c.mu.Lock()
				defer c.mu.Unlock()
				if c.done["all"] != 1200 {
					t.Errorf("%d jobs of 1200 are done", c.done["all"])
				}
				if c.most["all"] > test.places {
					t.Errorf("%d jobs ran at once, of %d", c.most["all"], test.places)
				}
				used := c.used("all", test.places)
				t.Logf("%.1f %% of the places were used, %d at once", 100*used, c.most["all"])
				if used < 0.9 {
					t.Errorf("%.1f %% of the places were used", 100*used)
				}
			})
		})
	}
}
