package policies

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
	"github.com/waterclock/waterclock/throttle/limits"
)

// No promise is broken where callers ask the limiter. It knows nothing of how many run at once.
func TestByTheLimiter(t *testing.T) {
	for _, r := range recipes {
		t.Run(r.file, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := throttle.New(throttle.NewMemoryStore())
				set, err := limits.FromFile(r.file, limiter)
				if err != nil {
					t.Fatal(err)
				}
				log := byTheLimiter(t, r, set)
				broken, unused := judge(rates(r), log, 0)
				for _, b := range broken {
					t.Error(b)
				}
				for _, u := range unused {
					t.Errorf("%s: nobody has used it up", u)
				}
			})
		})
	}
}

// rates returns the promises about rates.
func rates(r recipe) []promise {
	return slices.DeleteFunc(slices.Clone(r.promises), func(p promise) bool { return p.running })
}

// byTheLimiter lets callers make their calls, each caller one after the other, and returns when they were let.
func byTheLimiter(t *testing.T, r recipe, set *limits.Set) (log []start) {
	t.Helper()
	begin, end := time.Now(), time.Now().Add(r.lasts)
	var mu sync.Mutex
	var callers sync.WaitGroup
	for _, calls := range byCaller(r.traffic) {
		callers.Go(func() {
			for _, c := range calls {
				time.Sleep(time.Until(begin.Add(c.after)))
				if !allowed(t, set, c.job, end) {
					continue
				}
				mu.Lock()
				log = append(log, start{c, time.Now(), time.Now()})
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	return log
}

// allowed asks until the job is allowed, and reports whether that was before the end.
func allowed(t *testing.T, set *limits.Set, j queue.Job, end time.Time) bool {
	for {
		d, err := set.Allow(t.Context(), limits.Fields{Tenant: j.Tenant, User: j.User, Type: j.Type, Keys: j.Keys, Costs: j.Costs})
		if err != nil {
			t.Error(err)
		}
		if d.Outcome != throttle.Deferred || d.Slot.After(end) {
			return d.Outcome == throttle.Admitted
		}
		time.Sleep(d.RetryAfter)
	}
}

// byCaller returns calls that wait for the same limits together, in the order of time.
func byCaller(traffic []call) [][]call {
	var names []string
	callers := make(map[string][]call)
	for _, c := range traffic {
		name := c.job.Tenant + "/" + c.job.User + "/" + c.job.Type
		for _, key := range slices.Sorted(maps.Keys(c.job.Keys)) {
			name += "/" + key + "=" + c.job.Keys[key]
		}
		if callers[name] == nil {
			names = append(names, name)
		}
		callers[name] = append(callers[name], c)
	}
	var all [][]call
	for _, name := range names {
		all = append(all, slices.SortedStableFunc(slices.Values(callers[name]), func(a, b call) int { return cmp.Compare(a.after, b.after) }))
	}
	return all
}
