package schedule_test

import (
	"fmt"
	"slices"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// untold tells whether the scheduler has not been told of the first job of a lane.
func (m *model) untold(lane envelope.Lane) bool {
	return slices.ContainsFunc(m.notices[m.read:], func(n notice) bool { return n.lane == lane })
}

// left checks that a plan left nothing behind, and comes back in time, at the end of an override at the latest.
func (m *model) left(plan schedule.Plan, places int) error {
	if plan.Hungry && places > 0 {
		return fmt.Errorf("hungry, with %d places", places)
	}
	if plan.Hungry {
		return nil
	}
	for lane, jobs := range m.lanes {
		if len(jobs) == 0 || m.untold(lane) || m.vague(jobs[0]) || slices.Contains(m.unswept, lane.Tenant) {
			continue
		}
		t := jobs[0]
		slot := m.dropped(t, m.slot(t, max(m.now, m.slots[lane]), true))
		if slot >= m.ends() || m.awaitsEnd(t) || m.awaitsOpening(t) {
			continue // the leader decides again at the end
		}
		if m.full(t) {
			if err := m.tooLate(t, slot); err != nil {
				return err
			}
			continue
		}
		if slot < max(m.now+schedule.Lead-1000, plan.Next) && !m.blocked(t) {
			m.explain(lane)
		}
		if slot < m.now+schedule.Lead-1000 && !m.blocked(t) {
			return fmt.Errorf("job %d of %s may start in %d µs and was left behind (next in %d)", t.id, lane.Name(), slot-m.now, plan.Next-m.now)
		}
		if slot < plan.Next && !m.blocked(t) && len(m.stale) == 0 { // or it waits for a job that is not there any more, until it looks
			return fmt.Errorf("job %d may start in %d µs, and the leader sleeps for %d", t.id, slot-m.now, plan.Next-m.now)
		}
	}
	return nil
}

// dropped returns until when a job may be left behind that starts or is dropped at an instant: as long as others of its tenant may wait
// for the slots of the farthest worker, or for the newest one, if it is dropped.
func (m *model) dropped(t *task, at int64) int64 {
	until, refused := at+m.world.reached, false
	for _, of := range m.counts(t) {
		led := m.ledger(of.scope)
		refused = refused || led.refuses(at, of.cost, true)
		for _, s := range led.starts {
			until = max(until, s.at)
		}
	}
	if refused {
		return until
	}
	return at
}

// tooLate checks of a job that waits for the end of others that it was dropped when its deadline had passed. While its tenant,
// or the queue, runs as much as may, its lane may not have been read.
func (m *model) tooLate(t *task, slot int64) error {
	deadline := m.deadline(t)
	if deadline == 0 || deadline >= m.now || slot > m.now || m.blocked(t) || m.reached(envelope.QueueScope, envelope.TenantScope(t.lane.Tenant)) {
		return nil
	}
	m.explain(t.lane)
	return fmt.Errorf("job %d of %s waits %d µs after its deadline", t.id, t.lane.Name(), m.now-deadline)
}

// first checks that a job which starts leaves none of its tenant behind that has a higher priority and may start now, or before
// the job's slot. Which of those that wait for limits by name comes first, these say.
func (m *model) first(t *task, s schedule.Start) error {
	before := int64(schedule.Never)
	if slices.Contains(m.unswept, t.lane.Tenant) {
		return nil
	}
	for lane, jobs := range m.lanes {
		if lane.Priority >= t.lane.Priority || len(jobs) == 0 || lane.Tenant != t.lane.Tenant || m.stale[lane] || m.untold(lane) {
			continue
		}
		o := jobs[0]
		if late := m.deadline(o); late > 0 && late <= s.Slot || m.dead[o.env.ID] || o.cost() > t.cost() || len(m.counts(o)) > 3 || m.awaitsEnd(o) {
			continue
		}
		if before == schedule.Never {
			before = max(m.now, m.slot(t, m.now, false)-1)
		}
		if m.slot(o, max(m.now, m.slots[lane]), true) > before || m.vague(o) || m.full(o) || m.blocked(o) || m.awaitsOpening(o) {
			continue
		}
		m.explain(lane)
		return fmt.Errorf("job %d of %s starts before job %d of %s, which may start", t.id, t.lane.Name(), o.id, lane.Name())
	}
	return nil
}
