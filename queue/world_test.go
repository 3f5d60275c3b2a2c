package queue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/waterclock/waterclock/throttle"
)

// A world is the model of a queue: plain lines of jobs and plain lists of slots, written
// from the definitions. It does not say in which order lanes take turns, but it knows
// what may start when, and whether something was left behind.
type world struct {
	leak            int           // per second
	period, spacing time.Duration // of the window of modelWindow

	lanes   map[string][]*modelJob // "tenant:user:priority"
	later   []*modelJob
	running map[string]*modelJob
	paused  map[string]time.Time // "q", "tenant" or "tenant:user"
	users   map[string][]time.Time
	tenants map[string]lastSlot
	known   map[string]*modelJob
	expired []*modelJob // dropped, and not yet checked
}

type lastSlot struct {
	at   time.Time
	cost int
}

type modelJob struct {
	id, tenant, user string
	lane             string
	cost, failures   int
	deadline         time.Time
	notBefore        time.Time
	cancelled        bool
	state            string // waiting, started or over
	slot             time.Time
}

const modelWindow = 3

func newWorld(period time.Duration) *world {
	return &world{
		leak: 1000, period: period, spacing: time.Millisecond,
		lanes: map[string][]*modelJob{}, running: map[string]*modelJob{}, paused: map[string]time.Time{},
		users: map[string][]time.Time{}, tenants: map[string]lastSlot{}, known: map[string]*modelJob{},
	}
}

func (w *world) policy() Policy {
	return Policy{
		Tenant: []throttle.Rule{throttle.Leak(w.leak, time.Second)},
		User:   []throttle.Rule{throttle.Window(modelWindow, w.period), throttle.Spacing(w.spacing)},
	}
}

// userSlot returns when the rules of a user let a job start, given the slots so far.
func (w *world) userSlot(job *modelJob, t time.Time) time.Time {
	slots := slices.Clone(w.users[job.tenant+":"+job.user])
	slices.SortFunc(slots, func(a, b time.Time) int { return b.Compare(a) })
	if i := modelWindow - job.cost; i < len(slots) {
		t = latest(t, slots[i].Add(w.period+Grace))
	}
	if len(slots) > 0 {
		t = latest(t, slots[0].Add(w.spacing+Grace))
	}
	return t
}

// slot returns when a job at the head of its lane may start.
func (w *world) slot(job *modelJob, t time.Time) time.Time {
	t = latest(t, w.paused["q"], w.paused[job.tenant], w.paused[job.tenant+":"+job.user])
	if last := w.tenants[job.tenant]; !last.at.IsZero() {
		t = latest(t, last.at.Add(time.Duration(last.cost)*time.Second/time.Duration(w.leak)))
	}
	return w.userSlot(job, t)
}

func latest(times ...time.Time) (last time.Time) {
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}

func (w *world) offer(j Job, r Receipt) error {
	job := &modelJob{
		id: j.ID, tenant: j.Tenant, user: j.User, cost: j.Cost, deadline: j.Deadline, notBefore: j.NotBefore,
		lane: fmt.Sprintf("%s:%s:%d", j.Tenant, j.User, rank(j.Priority)), state: "waiting",
	}
	w.known[j.ID] = job
	hopeless := !j.Deadline.IsZero() && j.NotBefore.After(j.Deadline)
	if hopeless && r.Reason != ReasonExpired {
		return fmt.Errorf("may not start before its deadline: %+v", r)
	}
	if !hopeless && j.NotBefore.After(time.Now()) {
		w.later = append(w.later, job)
		return nil
	}
	w.lanes[job.lane] = append(w.lanes[job.lane], job)
	if r.Status == Accepted && r.Place != len(w.lanes[job.lane]) {
		return fmt.Errorf("place %d, want %d", r.Place, len(w.lanes[job.lane]))
	}
	if r.Status != Accepted && r.Reason != ReasonExpired && r.Reason != ReasonImpossible {
		return fmt.Errorf("not accepted: %+v", r)
	}
	return nil
}

// drop takes a job out, if there is a reason.
func (w *world) drop(id string, reason Reason) error {
	job := w.known[id]
	if reason == ReasonExpired {
		w.expired = append(w.expired, job)
	}
	if reason == ReasonCancelled != job.cancelled && reason != ReasonExpired {
		return fmt.Errorf("%s was dropped as %s; cancelled: %v", id, reason, job.cancelled)
	}
	job.state = "over"
	lane := w.lanes[job.lane]
	i := slices.Index(lane, job)
	if i < 0 {
		return fmt.Errorf("%s was dropped and did not wait in its lane", id)
	}
	w.lanes[job.lane] = slices.Delete(lane, i, i+1)
	return nil
}

// checkExpired checks the jobs dropped as expired, when everything that could have been
// before them is known.
func (w *world) checkExpired() error {
	for _, job := range w.expired {
		if !w.slot(job, latest(time.Now(), job.notBefore)).After(job.deadline) {
			return fmt.Errorf("%s was dropped as expired, and could start before its deadline", job.id)
		}
	}
	w.expired = nil
	return nil
}

// mature moves jobs whose time has come into their lanes, as a pull does.
func (w *world) mature() {
	slices.SortStableFunc(w.later, func(a, b *modelJob) int { return a.notBefore.Compare(b.notBefore) })
	for len(w.later) > 0 && !w.later[0].notBefore.After(time.Now()) {
		job := w.later[0]
		w.later = w.later[1:]
		if job.failures > 0 {
			w.lanes[job.lane] = slices.Insert(w.lanes[job.lane], 0, job)
		} else {
			w.lanes[job.lane] = append(w.lanes[job.lane], job)
		}
	}
}

// start checks a job that was pulled: the head of its lane, at the slot that the rules
// give it.
func (w *world) start(c claim) error {
	job := w.known[c.job.ID]
	lane := w.lanes[job.lane]
	if len(lane) == 0 || lane[0] != job {
		return fmt.Errorf("%s was started and is not the first of its lane", job.id)
	}
	if want := w.slot(job, time.Now()); !c.slot.Equal(want) {
		return fmt.Errorf("%s has a slot in %v, want %v", job.id, time.Until(c.slot), time.Until(want))
	}
	if !job.deadline.IsZero() && c.slot.After(job.deadline) {
		return fmt.Errorf("%s has a slot after its deadline", job.id)
	}
	if job.cancelled {
		return fmt.Errorf("%s was started and is cancelled", job.id)
	}
	w.lanes[job.lane] = lane[1:]
	job.state, job.slot = "started", c.slot
	w.running[c.token] = job
	w.spend(job, c.slot)
	w.tenants[job.tenant] = lastSlot{c.slot, job.cost}
	return nil
}

func (w *world) spend(job *modelJob, at time.Time) {
	user := job.tenant + ":" + job.user
	for range job.cost {
		w.users[user] = append(w.users[user], at)
	}
}

func (w *world) unspend(job *modelJob) {
	user := job.tenant + ":" + job.user
	for range job.cost {
		if i := slices.Index(w.users[user], job.slot); i >= 0 {
			w.users[user] = slices.Delete(w.users[user], i, i+1)
		}
	}
}

// nothingMore checks that a pull left nothing that it should have taken, and comes back
// in time for what is next.
func (w *world) nothingMore(lead time.Duration, next time.Time, full bool) error {
	horizon := time.Now().Add(lead)
	for _, lane := range w.lanes {
		if len(lane) == 0 {
			continue
		}
		// Lanes take turns by a virtual microsecond, which may move one over the horizon.
		slot := w.slot(lane[0], time.Now())
		if !full && slot.Before(horizon.Add(-100*time.Microsecond)) {
			return fmt.Errorf("%s may start in %v and was left behind", lane[0].id, time.Until(slot))
		}
		if next.IsZero() || next.After(latest(time.Now(), slot).Add(100*time.Microsecond)) {
			return fmt.Errorf("%s may start in %v, but the worker sleeps for %v", lane[0].id, time.Until(slot), time.Until(next))
		}
	}
	return nil
}

func (w *world) anyRunning(random *rand.Rand) string {
	tokens := make([]string, 0, len(w.running))
	for token := range w.running {
		tokens = append(tokens, token)
	}
	if len(tokens) == 0 {
		return ""
	}
	slices.Sort(tokens)
	return tokens[random.IntN(len(tokens))]
}

// fail returns the outcome of a failed attempt: 1 another one, 2 the end.
func (w *world) fail(token string, delay time.Duration) int64 {
	job := w.running[token]
	delete(w.running, token)
	if job.failures++; job.failures > 2 {
		job.state = "over"
		return 2
	}
	job.state, job.notBefore = "waiting", time.Now().Add(delay)
	w.later = append(w.later, job)
	return 1
}

func (w *world) release(token string) {
	job := w.running[token]
	w.unspend(job)
	w.putBack(token)
}

func (w *world) putBack(token string) {
	job := w.running[token]
	delete(w.running, token)
	if last := w.tenants[job.tenant]; last.at.Equal(job.slot) && last.cost == job.cost {
		w.tenants[job.tenant] = lastSlot{job.slot, 0}
	}
	job.state = "waiting"
	w.lanes[job.lane] = slices.Insert(w.lanes[job.lane], 0, job)
}

// admit returns the outcome of a late start: 1 it may start now, 2 it waits again.
func (w *world) admit(token string) int64 {
	job := w.running[token]
	w.unspend(job)
	if now := time.Now(); !w.userSlot(job, now).After(now) {
		w.spend(job, now)
		job.slot = now
		return 1
	}
	w.putBack(token)
	return 2
}

func (w *world) cancel(id string) bool {
	job := w.known[id]
	if job.state == "waiting" {
		job.cancelled = true
	}
	return job.state == "waiting"
}

func (w *world) count() (waiting, later int) {
	for _, lane := range w.lanes {
		waiting += len(lane)
	}
	return waiting, len(w.later)
}
