package fleet

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// A judge is the endpoint of webhooks. It answers each after a while, and remembers what came when.
type judge struct {
	takes func(id string) time.Duration // how long it takes to answer

	mu       sync.Mutex
	arrivals []arrival
	open     map[string]int // requests of a tenant that are not answered yet
	mostOpen map[string]int
	bad      []string // what it could not read
	late     time.Duration
}

// An arrival is the begin of a request.
type arrival struct {
	id, tenant, user string
	at               time.Time
}

func newJudge(takes func(id string) time.Duration) *judge {
	return &judge{takes: takes, open: make(map[string]int), mostOpen: make(map[string]int)}
}

// ServeHTTP implements [http.Handler].
func (j *judge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	var hook struct {
		Data struct {
			Data struct{ ID, Tenant, User string }
		}
	}
	err := json.NewDecoder(r.Body).Decode(&hook)
	job := hook.Data.Data
	j.mu.Lock()
	if err != nil || job.ID == "" {
		j.bad = append(j.bad, fmt.Sprintf("%v %+v", err, hook))
	}
	j.arrivals = append(j.arrivals, arrival{job.ID, job.Tenant, job.User, at})
	j.open[job.Tenant]++
	j.mostOpen[job.Tenant] = max(j.mostOpen[job.Tenant], j.open[job.Tenant])
	j.mu.Unlock()
	<-time.After(j.takes(job.ID))
	j.mu.Lock()
	j.open[job.Tenant]--
	j.mu.Unlock()
}

// watch measures until the channel is closed how late this machine runs what is due. So much earlier than an arrival a
// start may have been.
func (j *judge) watch(until <-chan struct{}) {
	const every = 5 * time.Millisecond
	tick := time.NewTimer(every)
	defer tick.Stop()
	for {
		due := time.Now().Add(every)
		tick.Reset(every)
		select {
		case <-until:
			return
		case at := <-tick.C:
			j.mu.Lock()
			j.late = max(j.late, at.Sub(due), time.Since(due))
			j.mu.Unlock()
		}
	}
}

func (j *judge) count() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.arrivals)
}

// Limits are what the judge holds arrivals against.
type limits struct {
	perTenant float64       // starts a second
	atOnce    int           // of a tenant
	spacing   time.Duration // between two of a user
	window    time.Duration
	inWindow  int // of a user
}

// A verdict is what a judge has found.
type verdict struct {
	lost, twice []string      // IDs
	broken      []string      // limits
	gap         time.Duration // the longest time without an arrival of a tenant, while it had something to start
}

// verdict compares what came with what was offered, and with limits: a start may have been earlier than its arrival, by
// slack and by as much as the machine was late. Up to the instant until there was always something to start.
func (j *judge) verdict(offered []string, l limits, slack time.Duration, until time.Time) (v verdict) {
	j.mu.Lock()
	defer j.mu.Unlock()
	slack += j.late
	times := make(map[string]int)
	users, tenants := make(map[string][]time.Time), make(map[string][]time.Time)
	slices.SortFunc(j.arrivals, func(a, b arrival) int { return a.at.Compare(b.at) })
	for _, a := range j.arrivals {
		times[a.id]++
		if before := tenants[a.tenant]; len(before) > 0 && a.at.Before(until) {
			v.gap = max(v.gap, a.at.Sub(before[len(before)-1]))
		}
		users[a.tenant+"/"+a.user] = append(users[a.tenant+"/"+a.user], a.at)
		tenants[a.tenant] = append(tenants[a.tenant], a.at)
	}
	for _, id := range offered {
		switch times[id] {
		case 0:
			v.lost = append(v.lost, id)
		case 1:
		default:
			v.twice = append(v.twice, id)
		}
		delete(times, id)
	}
	for id := range times {
		v.broken = append(v.broken, fmt.Sprintf("%q came, which was not offered", id))
	}
	for name, at := range users {
		v.broken = append(v.broken, tooClose(name, at, 1, l.spacing-slack)...)
		v.broken = append(v.broken, tooClose(name, at, l.inWindow, l.window-slack)...)
	}
	for name, at := range tenants {
		for n := 1; n < len(at); n *= 2 {
			v.broken = append(v.broken, tooClose(name, at, n, time.Duration(float64(n)/l.perTenant*float64(time.Second))-slack)...)
		}
	}
	for name, n := range j.mostOpen {
		if n > l.atOnce {
			v.broken = append(v.broken, fmt.Sprintf("%s: %d at once", name, n))
		}
	}
	v.broken = append(v.broken, j.bad...)
	return v
}

// tooClose says where an arrival came sooner after the one n places before it than it may.
func tooClose(name string, at []time.Time, n int, least time.Duration) (found []string) {
	for i := n; i < len(at); i++ {
		if d := at[i].Sub(at[i-n]); d < least {
			found = append(found, fmt.Sprintf("%s: %d in %v, want at least %v", name, n+1, d, least))
		}
	}
	return found
}

func (v verdict) String() string {
	shown := v.broken[:min(len(v.broken), 10)]
	return fmt.Sprintf("lost %q, twice %q, %d limits broken\n%s", v.lost, v.twice, len(v.broken), strings.Join(shown, "\n"))
}
