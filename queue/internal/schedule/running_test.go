package schedule_test

import (
	"fmt"
	"slices"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// concurrency draws how much runs at once.
func (m *model) concurrency() (c schedule.Concurrency) {
	switch m.IntN(6) {
	case 0:
		c.Jobs = pick(m, 1, 2, 5)
	case 1:
		c.Percent = pick(m, 1, 10, 50, 100)
	}
	return c
}

// staff changes how many places the fleet has.
func (m *model) staff() {
	if m.chance(10) {
		m.size100 = pick(m, 1, 4, 10, 100)
		m.note("%d places", m.size100)
		m.s.Step(m.now, schedule.Capacity(m.size100))
	}
}

// recount tells the scheduler what runs.
func (m *model) recount() {
	m.s.Step(m.now, schedule.Capacity(m.size100))
	var claims []envelope.ClaimRef
	for _, t := range m.tasks {
		if t.running {
			claims = append(claims, envelope.ClaimRef{Claim: t.claim})
		}
	}
	m.s.Step(m.now, schedule.Running(claims))
}

// A finished is a job whose end the leader has not heard of.
type finished struct {
	claim   envelope.Claim
	counted []count
}

// finish tells the leader, some time, that a job has ended.
func (m *model) finish(t *task) {
	m.finished = append(m.finished, finished{t.claim, t.counted})
}

// hear opens notices about claims that have ended; some of them again.
func (m *model) hear() {
	for len(m.finished) > 0 && !m.chance(10) {
		m.heard = append(m.heard, m.finished[0].claim)
		m.s.Step(m.now, schedule.Ended{m.finished[0].claim})
		m.finished = m.finished[1:]
	}
	if len(m.heard) > 0 && m.chance(10) {
		m.s.Step(m.now, schedule.Ended{m.heard[m.IntN(len(m.heard))]})
		m.heard = m.heard[max(0, len(m.heard)-100):]
	}
}

// mostOf returns how many jobs of a scope may run at once.
func (m *model) mostOf(scope string) int {
	switch c := m.boundsOf(scope).concurrency; {
	case c.Jobs > 0:
		return c.Jobs
	case c.Percent > 0:
		return max(1, c.Percent*m.size100/100)
	}
	return unlimited
}

const unlimited = 1 << 30

// runs returns how many jobs run of each scope.
func (m *model) runs() map[string]int {
	n := make(map[string]int)
	for _, t := range m.tasks {
		if t.running {
			for _, of := range t.counted {
				n[of.scope]++
			}
		}
	}
	return n
}

// full tells whether as many jobs run as may beside a job, as far as the leader has heard.
func (m *model) full(t *task) bool {
	var scopes []string
	for _, of := range m.counts(t) {
		scopes = append(scopes, of.scope)
	}
	return m.reached(scopes...)
}

// reached tells whether as many jobs of one of the scopes run as may, as far as the leader has heard.
func (m *model) reached(scopes ...string) bool {
	scopes = slices.DeleteFunc(scopes, func(scope string) bool { return m.mostOf(scope) == unlimited })
	if len(scopes) == 0 {
		return false
	}
	n := m.runs()
	for _, e := range m.finished {
		for _, of := range e.counted {
			n[of.scope]++
		}
	}
	return slices.ContainsFunc(scopes, func(scope string) bool { return n[scope] >= m.mostOf(scope) })
}

// claim notes under which claim a job starts, beside others that run.
func (m *model) claim(t *task, s schedule.Start) error {
	runs := m.runs() // with itself
	for _, of := range t.counted {
		if n, most := runs[of.scope], m.mostOf(of.scope); n > most {
			return fmt.Errorf("job %d starts as the %dth at once of %s, at most %d may", t.id, n, of.scope, most)
		}
	}
	if slices.Contains(m.heard, s.Claim) {
		return fmt.Errorf("job %d starts under a claim that was made before: %s", t.id, s.Claim)
	}
	t.claim = s.Claim
	return nil
}

// endAll ends everything that runs.
func (m *model) endAll() {
	for _, t := range slices.Clone(m.tasks) {
		if t.running {
			m.over1(t)
			t.running, t.over = false, true
			m.finish(t)
		}
	}
}
