package queue_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// What an operator does again and again takes no turns from anybody: tenants, and users of a tenant, get
// as many starts as without it.
func TestOperatorsTakeNoTurns(t *testing.T) {
	t.Parallel()
	const crowd, places = 60, 1
	acts := map[string]func(t *testing.T, in *queue.Inspector, i int){
		"nothing": func(*testing.T, *queue.Inspector, int) {},
		"pause of a user": func(t *testing.T, in *queue.Inspector, _ int) {
			must(t, in.Pause(t.Context(), queue.Pause{Scope: queue.ScopeUser, Tenant: "idle", User: "u", Until: time.Now().Add(time.Second)}))
		},
		"pause of a tenant": func(t *testing.T, in *queue.Inspector, _ int) {
			must(t, in.Pause(t.Context(), queue.Pause{Scope: queue.ScopeTenant, Tenant: "idle", Until: time.Now().Add(time.Second)}))
		},
		"other policies": func(t *testing.T, in *queue.Inspector, i int) {
			must(t, in.SetPolicies(t.Context(), policies(queue.Policy{Capacity: 10_000 + i})))
		},
		"other rules": func(t *testing.T, in *queue.Inspector, i int) {
			must(t, in.SetPolicies(t.Context(), policies(queue.Policy{User: []throttle.Rule{throttle.Window(100+i%2, time.Minute)}})))
		},
		"a cancelled job": func(t *testing.T, in *queue.Inspector, i int) {
			_, err := in.Cancel(t.Context(), fmt.Sprint("j", i))
			must(t, err)
		},
		"a purge": func(t *testing.T, in *queue.Inspector, _ int) {
			_, err := in.Purge(t.Context(), "idle")
			must(t, err)
		},
	}
	var cases []string
	for name := range acts {
		cases = append(cases, name+", tenants", name+", users")
	}
	slices.Sort(cases)
	cases = sample.Draw(t, cases, 0, 2)
	for name, act := range acts {
		for who, of := range map[string]func(i int) (tenant, user string){
			"tenants": func(i int) (string, string) { return fmt.Sprint("t", i), "u" },
			"users":   func(i int) (string, string) { return "t", fmt.Sprint("u", i) },
		} {
			if !slices.Contains(cases, name+", "+who) {
				continue
			}
			t.Run(name+", "+who, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					client := redistest.Mini(t)
					setPolicies(t, client, policies(queue.Policy{}))
					for i := range crowd {
						tenant, user := of(i)
						enqueue(t, client, jobs(tenant, user, 40)...)
					}
					for i := range 300 {
						enqueue(t, client, queue.Job{ID: fmt.Sprint("j", i), Tenant: "idle", User: "later", Type: "push", NotBefore: time.Now().Add(time.Hour)})
					}
					got := recorder{then: func(context.Context, queue.Info) error {
						time.Sleep(50 * time.Millisecond)
						return nil
					}}
					runWorker(t, client, &got, queue.WorkerConfig{Concurrency: places})
					in := newInspector(t, client, "push")
					for i := range 240 { // for a minute
						time.Sleep(250 * time.Millisecond)
						act(t, in, i)
					}
					per := map[string]int{}
					for _, s := range got.all() {
						per[s.Tenant+" "+s.User]++
					}
					least, most := 1000, 0
					for i := range crowd {
						tenant, user := of(i)
						n := per[tenant+" "+user]
						least, most = min(least, n), max(most, n)
					}
					if least < 18 || most-least > 2 {
						t.Errorf("of %d starts the least got %d, the most %d", len(got.all()), least, most)
					}
				})
			})
		}
	}
}

// Weights hold while policies change.
func TestWeightsHoldWhilePoliciesChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		weights := map[string]int{"a": 5, "b": 3, "c": 2}
		set := func(capacity int) {
			p := queue.Policies{Policies: map[string]queue.Policy{}, Tenants: map[string]string{}}
			for tenant, weight := range weights {
				p.Policies[tenant], p.Tenants[tenant] = queue.Policy{Weight: weight, Capacity: capacity}, tenant
			}
			setPolicies(t, client, p)
		}
		set(1000)
		for tenant := range weights {
			enqueue(t, client, jobs(tenant, "u", 300)...)
		}
		got := recorder{then: func(context.Context, queue.Info) error {
			time.Sleep(100 * time.Millisecond)
			return nil
		}}
		runWorker(t, client, &got, queue.WorkerConfig{Concurrency: 1})
		for i := range 80 {
			time.Sleep(250 * time.Millisecond)
			set(1001 + i)
		}
		per := map[string]int{}
		all := got.all()
		for _, s := range all {
			per[s.Tenant]++
		}
		for tenant, weight := range weights {
			if want := len(all) * weight / 10; per[tenant] < want-3 || per[tenant] > want+3 {
				t.Errorf("%s started %d times of %d, want %d", tenant, per[tenant], len(all), want)
			}
		}
	})
}

// A resumed tenant goes on where it was, and nobody else begins anew.
func TestAResumeBeginsNothingAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		setPolicies(t, client, policies(queue.Policy{Tenant: []throttle.Rule{throttle.Leak(1, time.Second)}}))
		for _, user := range []string{"a", "b", "c"} {
			enqueue(t, client, jobs("t", user, 3)...)
		}
		var got recorder
		runWorker(t, client, &got, queue.WorkerConfig{})
		in := newInspector(t, client, "push")
		time.Sleep(1500 * time.Millisecond) // a and b have started
		must(t, in.Pause(t.Context(), queue.Pause{Scope: queue.ScopeTenant, Tenant: "t", Until: time.Now().Add(time.Hour)}))
		time.Sleep(10 * time.Second)
		must(t, in.Resume(t.Context(), queue.Pause{Scope: queue.ScopeTenant, Tenant: "t"}))
		time.Sleep(20 * time.Second)
		var order []string
		for _, s := range got.all() {
			order = append(order, s.User)
		}
		if want := strings.Fields("a b c a b c a b c"); !slices.Equal(order, want) {
			t.Errorf("started %v, want %v", order, want)
		}
	})
}
