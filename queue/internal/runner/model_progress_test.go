package runner

import (
	"math"
	"slices"

	"github.com/waterclock/waterclock/queue/internal/clock"
	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// countPlaces notes since when there are free places.
func (j *judge) countPlaces() {
	free, out := 0, j.sitting(clockNow())
	for _, h := range j.w.hired {
		if !h.left.Load() && !h.held && !out[h] {
			free += max(0, h.places-h.running)
		}
	}
	if crowded := free == 0; crowded != j.crowded {
		j.crowded = crowded
		if !crowded {
			j.roomy = clockNow()
		}
	}
}

// due returns since when the textbook lets the first job of a lane start, and what did not before;
// never if it does not.
func (j *judge) due(lane envelope.Lane, now int64) (since int64, why string) {
	tasks := j.lanes[lane]
	ready, cost := int64(math.MaxInt64), int64(0)
	for _, t := range tasks {
		if t.oddly && t.state == waits && t.collapse != "" { // it may be the first, and wait for other limits than those behind it
			return never, "a job of which nobody knows where it is"
		}
		if t.state != waits || t.ready > now || t.oddly {
			continue
		}
		cost = max(cost, t.cost)
		if t.excused < now {
			ready = min(ready, max(t.ready, t.excused))
		}
	}
	if ready == math.MaxInt64 {
		return never, "nothing waits"
	}
	postpone := func(at int64, reason string) {
		if at > since {
			since, why = at, reason
		}
	}
	postpone(ready, "its offer")
	postpone(j.last[lane], "the job before it")
	postpone(j.calm, "trouble")
	postpone(j.roomy, "places")
	postpone(j.limited, "other limits by name")
	if j.crowded || j.blockedByBigger(lane, cost, now) {
		return never, "no place, or a bigger job"
	}
	subjects := j.subjects(tasks, now)
	awaits, lapsed := j.awaitsEnd(subjects, now)
	if awaits {
		return never, "the end of an override"
	}
	postpone(lapsed, "the end of an override")
	for _, l := range j.ledgersOf(subjects) {
		if l.full() || j.haunted(l) {
			return never, "concurrency"
		}
		postpone(l.freed, "concurrency of "+l.scope)
		postpone(j.paused[l.scope], "a pause of "+l.scope)
	}
	for range 3 {
		before := since
		for _, c := range subjects {
			postpone(j.ledger(c.scope).opens(c.cost, since), "the rules of "+c.scope)
		}
		if since == before {
			break
		}
	}
	return since, why
}

const never = math.MaxInt64 / 2

// blockedByBigger reports whether a job that costs more waits for the rules of the tenant, or of the
// queue: nothing else of them starts before it.
func (j *judge) blockedByBigger(lane envelope.Lane, cost, now int64) bool {
	if !j.w.big {
		return false
	}
	limit, _ := j.codeOf(envelope.QueueScope)
	queue := len(limit.norms) > 0
	for other, tasks := range j.lanes {
		if other.Tenant != lane.Tenant && !queue {
			continue
		}
		for _, t := range tasks {
			if t.state == waits && t.cost > cost && t.ready <= now {
				return true
			}
		}
	}
	return false
}

// checkProgress looks for lanes of a tenant that are due for too long; of all tenants for "".
func (j *judge) checkProgress(tenant string) {
	now := clockNow()
	j.survey()
	for lane, tasks := range j.lanes {
		if tenant != "" && lane.Tenant != tenant || len(tasks) == 0 {
			continue
		}
		since, why := j.due(lane, now)
		most := int64(patience)
		if j.quiet(since) {
			most = brisk
		}
		if wait := j.detour(j.subjects(tasks, now)); wait > 0 {
			most = patience + wait
		}
		if since+most < now {
			j.w.fail(lane.Tenant, lane.User, "lane %s is due since %v (%s), and nothing starts: %v", lane.Name(), clock.Micros(now-since), why, tasks[0])
			j.last[lane] = now // and is asked for again later
		}
		j.checkDeadlines(lane, tasks, now)
	}
}

// checkDeadlines looks for lanes in which all jobs should have been dropped. A lane that may start
// nothing may not have been read.
func (j *judge) checkDeadlines(lane envelope.Lane, tasks []*task, now int64) {
	latest, _ := j.due(lane, now)
	if latest == never {
		return
	}
	for _, t := range tasks {
		if t.state != waits || t.deadline == 0 || t.oddly || t.ready > now || t.excused > now {
			return
		}
		latest = max(latest, t.deadline, t.ready, t.excused)
	}
	queue, _ := j.codeOf(envelope.QueueScope)
	for other, at := range j.last { // while others have their turns it is not the first in line
		if other.Tenant == lane.Tenant || len(j.codex.named) > 0 || len(queue.norms) > 0 || queue.most > 0 {
			latest = max(latest, at)
		}
	}
	if latest = max(latest, j.calm); latest+patience < now {
		j.w.fail(lane.Tenant, lane.User, "%v waits %v after its deadline", tasks[0], clock.Micros(now-tasks[0].deadline))
		j.last[lane] = now
	}
}

// checkOrder asks whether a younger job of the lane has got an earlier slot.
func (j *judge) checkOrder(t *task, at *attempt) {
	if !t.plain || !j.quiet(t.ready) {
		return
	}
	for _, s := range j.ledger(scopesOf(t.lane)[2]).starts {
		if o := s.t; s.lane == t.lane && o.stamp > t.stamp && o.started == 1 && o.collapse == "" && s.slot < at.slot && !s.phantom {
			j.fail(t, "%s has a slot %v after that of %s, which is younger", t, clock.Micros(at.slot-s.slot), o)
			return
		}
	}
}

// suspect notes a start before which one of a higher priority may have been due, as far as the queue,
// the tenant and the places go, since it could have had this slot.
func (j *judge) suspect(t *task, at *attempt) {
	for p := range t.lane.Priority {
		for lane, tasks := range j.lanes {
			bigger := slices.ContainsFunc(tasks, func(o *task) bool { return o.cost > t.cost || len(j.charges(o)) > 3 }) // it may be the first
			if lane.Tenant != t.lane.Tenant || lane.Priority != p || bigger || !j.quiet(at.slot-brisk) {
				continue
			}
			for _, o := range tasks {
				if o.state == waits && o.plain && o.ready < at.slot-brisk && j.opened(lane, at.slot-brisk) && !j.roomIsKept(o) {
					j.suspects = append(j.suspects, suspect{spend{t: t, at: at.at, slot: at.slot}, lane, o, at.at})
					break
				}
			}
		}
	}
}

// roomIsKept reports whether a job of the same user costs more, for which room may be kept in the user's rules.
func (j *judge) roomIsKept(t *task) bool {
	for lane, tasks := range j.lanes {
		if lane.SameUser(t.lane) && slices.ContainsFunc(tasks, func(o *task) bool { return o.cost > t.cost && o.state == waits }) {
			return true
		}
	}
	return false
}

// opened reports whether neither a pause nor a concurrency limit has kept a lane from starting since
// an instant.
func (j *judge) opened(lane envelope.Lane, since int64) bool {
	for _, scope := range scopesOf(lane) {
		l := j.ledger(scope)
		if j.paused[l.scope] > since || l.full() || l.freed > since || l.vague > since || l.gone > since {
			return false
		}
	}
	return true
}

// checkSuspects asks, when all that was decided with those starts has started, whether the jobs of the
// higher priority still wait.
func (j *judge) checkSuspects() {
	now := clockNow()
	j.suspects = slices.DeleteFunc(j.suspects, func(s suspect) bool {
		if now < s.at+decided {
			return false
		}
		if s.t.state != waits || s.t.started > 0 || s.t.ready > s.at-brisk || s.t.oddly || !j.quiet(s.at-brisk) {
			return true
		}
		l := j.ledger(scopesOf(s.lane)[2])
		before := *l
		before.starts = slices.DeleteFunc(slices.Clone(l.starts), func(o spend) bool {
			return o.t == s.s.t && o.at == s.s.at || o.slot > s.s.slot+1
		})
		if before.opens(s.t.cost, 0) <= s.s.slot-wider && l.gone < s.at && l.vague < s.at {
			j.fail(s.t, "%v has started with a slot %v ago, and %v could have had it, which waits for %v", s.s.t, clock.Micros(now-s.s.slot), s.t, clock.Micros(now-s.t.ready))
		}
		return true
	})
}
