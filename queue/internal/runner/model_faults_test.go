package runner

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// join lets a worker come, unless there are many.
func (w *world) join() {
	if len(w.alive()) < 4 {
		w.hire()
		w.mu.Lock()
		w.judge.brief(1500*time.Millisecond, "a worker comes")
		w.judge.countPlaces()
		w.mu.Unlock()
	}
}

// one draws a worker: the leader in half of the cases. It returns nothing if it is the last one.
func (w *world) one() *hired {
	all := w.alive()
	if len(all) < 2 {
		return nil
	}
	if h := w.leading(); h != nil && w.chance(2) {
		return h
	}
	return all[w.IntN(len(all))]
}

func (w *world) leave() {
	h := w.one()
	if h == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last(h) {
		return
	}
	h.left.Store(true)
	w.judge.brief(2*time.Second, "%s leaves", h.name) // its handlers may take a second until they are ended
	w.judge.countPlaces()
	go h.stop()
}

func (w *world) kill() {
	h := w.one()
	if h == nil {
		return
	}
	w.killed(h)
	if len(w.alive()) < 2 {
		w.hire()
	}
}

// killed lets a worker's machine die, unless it is the last one: two workers may meet traps at one instant.
func (w *world) killed(h *hired) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last(h) {
		return false
	}
	if !h.dead { // it may be about to leave
		h.left.Store(true)
		w.judge.died(h)
		w.judge.trouble(3*time.Second, "%s dies", h.name)
	}
	h.wire.cut(true)
	go h.stop()
	return true
}

// last reports whether no other worker is there.
func (w *world) last(h *hired) bool {
	return !slices.ContainsFunc(w.alive(), func(o *hired) bool { return o != h })
}

// hold keeps a worker from Redis for some time, and so its beats: it may lose its claims.
func (w *world) hold() {
	h := w.one()
	if h == nil {
		return
	}
	w.holdFor(h, time.Duration(oneOf(w, 20, 200, 1000, 6000))*time.Millisecond*time.Duration(1+w.IntN(9))/10)
}

func (w *world) holdFor(h *hired, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h.held || h.left.Load() {
		return
	}
	w.judge.trouble(d+4*time.Second, "%s cannot reach Redis for %v", h.name, d)
	h.held, h.lost = true, h.lost || d > modelLease/2
	w.judge.countPlaces()
	goOn := h.wire.hold()
	time.AfterFunc(d, func() {
		goOn()
		w.mu.Lock()
		defer w.mu.Unlock()
		h.held = false
		w.judge.countPlaces()
	})
}

// cut breaks all connections of a worker.
func (w *world) cut() {
	all := w.alive()
	h := all[w.IntN(len(all))]
	w.mu.Lock()
	w.judge.trouble(2*time.Second, "the connections of %s break", h.name)
	w.mu.Unlock()
	h.wire.cut(false)
}

// depose ends the leader's lease by Redis's word and lets another worker lead beside it.
func (w *world) depose() {
	leader, all := w.leading(), w.alive()
	if len(all) < 2 {
		return
	}
	w.mu.Lock()
	w.judge.trouble(3*time.Second, "the leader is deposed")
	w.mu.Unlock()
	w.server.HSet("wc:{q}:meta", "till", "0")
	for _, h := range all {
		if h != leader {
			h.elector.Lead()
			return
		}
	}
}

// rest lets nothing happen until all trouble is over and what is due has had its time.
func (w *world) rest() { w.pass(time.Duration(4+w.IntN(12)) * time.Second) }

// olderPolicies lets Redis have lost the newest change, as after a failover. A worker that has read
// it puts it in force again; if none had, somebody does who reads their log.
func (w *world) olderPolicies() {
	w.mu.Lock()
	older := w.before
	w.mu.Unlock()
	if older.source == "" {
		return
	}
	at := w.client.TxPipeline() // a replica has one state at a time
	at.HSet(w.ctx(), "wc:{q}:policies", "source", older.source, "version", older.version)
	at.HSet(w.ctx(), "wc:{q}:meta", "policies", older.version)
	at.HIncrBy(w.ctx(), "wc:{q}:meta", "changes", -1)
	if _, err := at.Exec(w.ctx()); err != nil {
		w.t.Error(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost, w.lostAt = governed{w.source, w.version}, time.Now()
	w.source, w.version, w.before = older.source, older.version, governed{}
	w.judge.govern(w.sources[older.source].at(time.Now().Add(w.offset).UnixMicro()))
	w.judge.trouble(2*time.Second, "Redis has older policies")
}

// setAgain puts the policies in force again that Redis has lost and no worker had read.
func (w *world) setAgain() {
	const reads = 500 * time.Millisecond // the log
	w.mu.Lock()
	lost := w.lost
	w.mu.Unlock()
	if lost.version == 0 || time.Since(w.lostAt) < reads {
		return
	}
	w.lost = governed{}
	if version, _ := strconv.ParseInt(w.server.HGet("wc:{q}:meta", "policies"), 10, 64); version < lost.version {
		w.govern(w.sources[lost.source])
		w.mu.Lock()
		w.judge.trouble(2*time.Second, "lost policies are set again")
		w.mu.Unlock()
	}
}

// takeOver lets another worker lead at a quiet point: what waits starts when it would have.
func (w *world) takeOver() {
	if w.chance(2) {
		return
	}
	w.pass(300 * time.Millisecond)
	w.mu.Lock()
	w.judge.checkBounds()
	w.mu.Unlock()
	leader, all := w.leading(), w.alive()
	if leader == nil || len(all) < 2 {
		w.join()
		return
	}
	w.mu.Lock()
	leader.left.Store(true)
	w.judge.brief(1100*time.Millisecond, "%s leaves, and another leads", leader.name)
	w.judge.countPlaces()
	w.mu.Unlock()
	go leader.stop()
	w.hire()
	w.pass(2 * time.Second)
}

// refusals are commits that find something else than the leader has seen. They are no trouble: the
// others do not wait for them.
var refusals = []act{{10, (*world).refuse}}

// refuse lets something happen just before one of the next commits that take a job out of a lane.
func (w *world) refuse() {
	h := w.leading()
	if h == nil {
		return
	}
	what := oneOf(w, "a purge", "a purge", "a cancelling", "a pause", "a worker leaves", "a member", "a member", "a member")
	tenant, pick := w.tenant(), w.IntN(1000)
	member := w.newcomer(tenant)
	w.mu.Lock()
	defer w.mu.Unlock()
	h.traps = append(h.traps, &trap{what: what, commits: true, after: w.IntN(4), do: func(h *hired, cmd redis.Cmder, do func() error) error {
		if what == "a member" {
			w.gatecrash(member, pick)
		} else {
			w.befall(what, tenant, pick, h)
		}
		return do()
	}})
}

// befall lets something happen to what a commit is about to take.
func (w *world) befall(what, tenant string, pick int, leader *hired) {
	switch what {
	case "a purge":
		w.note(tenant, "", "purges a job")
		_, _, err := w.store.Purge(w.ctx(), tenant, 1+pick%3, store.Note{})
		w.mu.Lock()
		defer w.mu.Unlock()
		if err == nil {
			w.judge.read()
		}
	case "a cancelling":
		w.mu.Lock()
		var all []*task
		for _, tasks := range w.judge.lanes {
			if len(tasks) == 0 || tasks[0].state != waits {
				continue
			}
			if tasks[0].id != "" {
				all = append(all, tasks[0])
			}
			for _, m := range tasks[0].parts() {
				if m.id != "" && m.cancelled == 0 {
					all = append(all, m)
				}
			}
		}
		w.mu.Unlock()
		slices.SortFunc(all, func(a, b *task) int { return strings.Compare(a.stamp, b.stamp) })
		if len(all) > 0 {
			w.cancelTask(all[pick%len(all)])
		}
	case "a pause":
		w.pauseFor(envelope.UserScope(tenant, "u0"), time.Duration(pick)*time.Millisecond)
	case "a worker leaves":
		w.mu.Lock()
		var other *hired
		for _, h := range w.alive() {
			if h != leader {
				other = h
			}
		}
		if other != nil {
			other.left.Store(true)
			w.judge.brief(1500*time.Millisecond, "%s leaves", other.name)
			w.judge.countPlaces()
		}
		w.mu.Unlock()
		if other != nil {
			go other.stop()
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// setTrap lets something happen at a command of a worker.
func (w *world) setTrap() {
	all := w.alive()
	h := all[w.IntN(len(all))]
	if leader := w.leading(); leader != nil && !w.chance(3) {
		h = leader
	}
	t := &trap{commits: w.chance(2), after: w.IntN(12)}
	wait := time.Duration(w.IntN(200)) * time.Millisecond
	kill := len(all) > 1
	trouble := func(h *hired, d time.Duration) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.judge.trouble(d, "%s: %s", h.name, t.what)
	}
	switch w.IntN(7) {
	case 0:
		t.what = "a reply is lost"
		t.do = func(h *hired, cmd redis.Cmder, do func() error) error {
			trouble(h, 2*time.Second)
			if err := do(); err != nil {
				return err
			}
			return reset(cmd)
		}
	case 1:
		t.what = "a command is lost"
		t.do = func(h *hired, cmd redis.Cmder, do func() error) error { trouble(h, 2*time.Second); return reset(cmd) }
	case 2:
		t.what = "a command is late"
		t.do = func(h *hired, cmd redis.Cmder, do func() error) error {
			trouble(h, 3*time.Second)
			time.Sleep(wait)
			return do()
		}
	case 3:
		t.what = "connections break"
		t.do = func(h *hired, cmd redis.Cmder, do func() error) error {
			trouble(h, 2*time.Second)
			err := do()
			w.mu.Lock()
			defer w.mu.Unlock()
			if !h.dead {
				h.wire.cut(false)
			}
			return err
		}
	case 4, 5:
		t.what = "its machine dies"
		after := w.chance(2)
		if !kill {
			return
		}
		t.do = func(h *hired, cmd redis.Cmder, do func() error) error {
			if after {
				err := do()
				if err == nil && w.killed(h) {
					err = reset(cmd)
				}
				return err
			}
			if w.killed(h) {
				return reset(cmd)
			}
			return do()
		}
	default:
		w.refuse()
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	h.traps = append(h.traps, t)
}

// stepWorker steps the wall clock of a worker.
func (w *world) stepWorker() {
	all := w.alive()
	h, d := all[w.IntN(len(all))], oneOf(w, time.Second, -time.Second, 200*time.Millisecond, time.Hour, -time.Hour, 3*time.Second)
	w.mu.Lock()
	w.judge.trouble(time.Second, "the wall clock of %s steps by %v", h.name, d)
	w.mu.Unlock()
	h.suspend(d)
}

// suspendMachine lets a machine sleep: its handlers go on, as they would have before.
func (w *world) suspendMachine() {
	h, d := w.one(), oneOf(w, time.Second, 4*time.Second)
	if h == nil || h.held {
		return
	}
	w.holdFor(h, d)
	w.mu.Lock()
	h.lost = true
	w.mu.Unlock()
	h.worker.Clock.Shift(-d, 0)
}

// stepRedis steps Redis's clock: how starts lie by the machine's is nobody's promise then.
func (w *world) stepRedis() {
	d := time.Duration(oneOf(w, 200, 1000, -200, -1000)) * time.Millisecond
	w.mu.Lock()
	w.offset += d
	w.stepped.Store(true)
	w.judge.stepped(d)
	w.mu.Unlock()
	w.tick()
	if d < 0 { // of those that have ended nobody could say whether they count again
		w.withoutDecrees()
	}
}

// loseState lets what the rules of somebody remember vanish, or be of another type.
func (w *world) loseState() {
	lane := envelope.Lane{Tenant: w.tenant(), User: w.user()}
	scope := scopesOf(lane)[1+w.IntN(2)]
	if named := w.limitScope(); named != "" && w.chance(3) {
		scope = named
	}
	other := w.chance(2)
	w.mu.Lock()
	w.judge.forgets(scope)
	w.noteLocked(lane.Tenant, "", "KEY state of %s is lost; another type: %v", scope, other)
	w.mu.Unlock()
	key := store.NewKeys("q").State(scope)
	w.client.Del(w.ctx(), key)
	if other {
		w.client.HSet(w.ctx(), key, "odd", "thing")
	}
}

// loseLane lets a lane vanish, or be of another type for a while.
func (w *world) loseLane() {
	lane := envelope.Lane{Tenant: w.tenant(), User: w.user(), Priority: w.IntN(3)}
	if t := w.pickTask(func(t *task) bool { return t.state == waits && t.lane.Label != "" }); t != nil && w.chance(2) {
		lane = t.lane
	}
	other := w.chance(2)
	w.mu.Lock()
	w.judge.loses(lane, other)
	w.noteLocked(lane.Tenant, lane.User, "KEY lane %s is lost; another type: %v", lane.Name(), other)
	w.mu.Unlock()
	key := store.NewKeys("q").Lane(lane)
	w.client.Del(w.ctx(), key)
	if other {
		w.client.Set(w.ctx(), key, "odd", 0)
		time.AfterFunc(time.Duration(w.IntN(3000))*time.Millisecond, func() { w.client.Del(w.ctx(), key) })
	}
}
