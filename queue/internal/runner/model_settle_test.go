package runner

import (
	"slices"
	"strings"
	"time"

	"github.com/waterclock/waterclock/queue/internal/clock"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// watch looks at everything.
func (j *judge) watch() {
	j.lapse()
	j.read()
	j.haunt()
	j.countPlaces()
	now := clockNow()
	for lane, until := range j.odd { // what comes meanwhile may find no place
		if until < now {
			delete(j.odd, lane)
			continue
		}
		for _, t := range j.lanes[lane] {
			t.oddly = true
		}
	}
	if j.w.scene.contest {
		return
	}
	j.checkProgress("")
	j.checkSuspects()
	j.checkRefusals(now)
}

// checkBounds compares what Redis says of when lanes are due with the textbook: that may be earlier,
// and never later.
func (j *judge) checkBounds() {
	now := clockNow()
	if !j.quiet(now) || j.claimed() {
		return
	}
	keys := store.NewKeys("q")
	for lane, tasks := range j.lanes {
		at, why := j.due(lane, now)
		if at == never || slices.ContainsFunc(tasks, func(t *task) bool { return t.state == runs || t.oddly || t.doubtful }) {
			continue
		}
		at = max(at, now)
		bound, err := j.w.server.ZScore(keys.Due(lane.Tenant, lane.Priority), lane.Member())
		if err != nil {
			j.w.fail(lane.Tenant, lane.User, "lane %s has jobs (%v) and is not in its index", lane.Name(), tasks[0])
			continue
		}
		if d := int64(bound) - j.w.offset.Microseconds() - at; d > brisk {
			j.w.fail(lane.Tenant, lane.User, "Redis has a bound of lane %s that is %v after the textbook's (%s)", lane.Name(), clock.Micros(d), why)
		}
		if bound, err := j.w.server.ZScore(keys.Tenants(), lane.Tenant); err != nil || int64(bound)-j.w.offset.Microseconds()-at > brisk {
			j.w.fail(lane.Tenant, "", "Redis has a bound of tenant %s that is %v after that of lane %s (%v)", lane.Tenant, clock.Micros(int64(bound)-at), lane.Name(), err)
		}
	}
}

// claimed reports whether a worker has a job.
func (j *judge) claimed() bool {
	return slices.ContainsFunc(j.w.server.Keys(), func(key string) bool { return strings.HasPrefix(key, "wc:{q}:running:") })
}

// settle ends a world: nothing is in anybody's way any more, and everything comes to its end.
func (w *world) settle() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	for _, h := range w.hired {
		h.mustGoOn()
	}
	if len(w.alive()) < 2 {
		w.hire()
		w.mu.Lock()
		w.judge.trouble(1500*time.Millisecond, "a worker comes")
		w.judge.countPlaces()
		w.mu.Unlock()
	}
	free := codex{}
	for range w.tenants {
		free.tenants, free.users, free.weights = append(free.tenants, code{}), append(free.users, code{}), append(free.weights, 1)
	}
	w.govern(free)
	w.mu.Lock()
	var paused []string
	for scope, until := range w.judge.paused {
		if until > clockNow() {
			paused = append(paused, scope)
		}
	}
	w.mu.Unlock()
	slices.Sort(paused)
	for _, scope := range paused {
		w.pauseFor(scope, 0)
	}
	for range 600 {
		w.pass(100 * time.Millisecond)
		w.mu.Lock()
		n := len(w.judge.open())
		wrong := len(w.wrong) > 0
		w.mu.Unlock()
		if n == 0 || wrong {
			break
		}
	}
	w.pass(5 * time.Second) // claims of dead workers
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.judge.open() {
		if len(w.wrong) > 0 && t.state == runs {
			continue
		}
		w.judge.fail(t, "%s %v at the end, since %v; it is in %v", t, t.state, clock.Micros(clockNow()-t.ready), w.find(t))
	}
	w.judge.checkRest()
}

// find returns the keys in which a job stands.
func (w *world) find(t *task) (keys []string) {
	name := ""
	for _, l := range strings.Split(w.server.Dump(), "\n") {
		if strings.HasPrefix(l, "- ") {
			name = strings.TrimPrefix(l, "- ")
		} else if t.stamp != "" && strings.Contains(l, t.stamp) && !slices.Contains(keys, name) {
			keys = append(keys, name)
		}
	}
	return keys
}

// mustGoOn lets a worker's traffic go on.
func (h *hired) mustGoOn() {
	h.traps = nil
}

// open returns the jobs of which nobody knows yet what becomes of them.
func (j *judge) open() (all []*task) {
	for _, t := range j.tasks {
		t.inherit()
		if !t.over() && !t.oddly {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b *task) int { return int(a.offered - b.offered) })
	return all
}

// checkRest looks at what Redis holds when nothing waits any more.
func (j *judge) checkRest() {
	if len(j.w.wrong) > 0 {
		return
	}
	odd := slices.ContainsFunc(j.all(), func(t *task) bool { return t.oddly })
	if !odd && !j.miscounted {
		j.checkCounters()
	}
	for _, key := range j.w.server.Keys() {
		switch {
		case len(key) > 14 && key[:14] == "wc:{q}:running" && !odd:
			claims, _ := j.w.server.HKeys(key)
			if len(claims) > 0 {
				j.w.fail("", "", "claims are left: %s %v", key, claims)
			}
		case key == "wc:{q}:backlogs" && !j.miscounted:
			scopes, _ := j.w.server.ZMembers(key)
			j.w.fail("", "", "backlogs are left: %v", scopes)
		case (strings.HasPrefix(key, "wc:{q}:digest:") || strings.HasPrefix(key, "wc:{q}:fold")) && !odd:
			j.w.fail("", "", "a digest, or a job under a key, is left: %s", key)
		case len(key) > 11 && key[:11] == "wc:{q}:lane" && !odd:
			j.w.fail("", "", "a lane is left: %s", key)
		case len(key) > 12 && key[:12] == "wc:{q}:state":
			if ttl := j.w.server.TTL(key); ttl > 2*time.Minute {
				j.w.fail("", "", "a state is kept for %v: %s", ttl, key)
			}
		case len(key) > 14 && key[:14] == "wc:{q}:tenant:" && !odd:
			count := func(field string) int64 { return number(j.w.server.HGet(key, field)) }
			if n := count("in") + count("back") - count("started") - count("dropped"); n != 0 {
				j.w.fail("", "", "counters say that %d jobs wait: %s", n, key)
			}
		}
	}
}

// checkCounters compares what the queue has counted with what became of the jobs, each member of a digest by itself.
func (j *judge) checkCounters() {
	ended, offered := map[state]int64{}, int64(0)
	for _, t := range j.tasks {
		if t.bundle == nil {
			ended[t.state]++
			offered++
		}
	}
	buried := int64(0)
	entries, _ := j.w.server.Stream("wc:{q}:dead")
	for _, entry := range entries {
		if n := slices.Index(entry.Values, "job"); n >= 0 {
			if env, ok := envelope.Head(entry.Values[n+1]); ok {
				buried += int64(len(env.Parts()))
			}
		}
	}
	count := func(field string) int64 { return number(j.w.server.HGet("wc:{q}:meta", field)) }
	for _, c := range []struct {
		what      string
		got, want int64
	}{
		{"offered", count("in") + count("other"), offered}, {"done", count("done"), ended[done]},
		{"dropped", count("dropped") + count("out"), ended[dropped]}, {"dead", buried, ended[dead]},
	} {
		if c.got != c.want {
			j.w.fail("", "", "counters say that %d jobs are %s, and %d are", c.got, c.what, c.want)
		}
	}
}

func (j *judge) all() (all []*task) {
	for _, t := range j.tasks {
		all = append(all, t)
	}
	return all
}
