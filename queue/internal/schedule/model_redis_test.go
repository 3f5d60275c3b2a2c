package schedule_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

func (m *model) state(scope string) string {
	st := m.states[scope]
	if st.until <= m.now {
		delete(m.states, scope)
		return ""
	}
	return st.text
}

func index(l envelope.Lane) string { return fmt.Sprint(l.Tenant, " ", l.Priority) }

// notes puts a lane into its index, or lowers its bound there.
func (m *model) notes(l envelope.Lane, at int64) {
	in := m.due[index(l)]
	if in == nil {
		in = map[string]int64{}
		m.due[index(l)] = in
	}
	lower(in, l.Member(), at)
	lower(m.tenants, l.Tenant, at)
}

func lower(of map[string]int64, name string, at int64) {
	if before, there := of[name]; !there || at < before {
		of[name] = at
	}
}

// commit applies a plan, if all is as the scheduler saw it.
func (m *model) commit(plan schedule.Plan) (bool, error) {
	seen := map[envelope.Lane]int{}
	for _, l := range plan.Left {
		lane := m.lanes[l.Lane]
		if i := seen[l.Lane]; i >= len(lane) || lane[i].env.Stamp != l.Begin {
			if !m.stale[l.Lane] {
				return false, fmt.Errorf("%s is not the next of lane %s", l.Begin, l.Lane.Name())
			}
			m.note("refused: not as the leader saw it")
			m.restartScheduler()
			return false, nil
		}
		seen[l.Lane]++
		m.seen[l.Begin] = true
	}
	starts, drops := plan.Starts, plan.Drops
	for _, l := range plan.Left {
		t, err := m.pop(l.Lane, l.Begin)
		if err != nil {
			return false, err
		}
		if len(starts) > 0 && starts[0].Lane.SameUser(l.Lane) && starts[0].Head.Begin() == l.Begin {
			m.note("%d starts in %d at %s", t.id, starts[0].Slot-m.now, starts[0].Worker)
			if want := m.policies.Label(t.lane, t.env); starts[0].Lane.Label != want {
				return false, fmt.Errorf("job %d has a claim of label %q, want %q", t.id, starts[0].Lane.Label, want)
			}
			if err = m.first(t, starts[0]); err == nil {
				err = m.start(t, starts[0], m.placeOf(starts[0]))
			}
			if err == nil {
				err = m.claim(t, starts[0])
			}
			if err != nil {
				m.explain(t.lane)
			}
			starts = starts[1:]
		} else if len(drops) > 0 && drops[0].Lane == l.Lane && drops[0].Head.Begin() == l.Begin {
			m.note("%d is dropped: %s %s", t.id, drops[0].Reason, drops[0].Rule)
			err = m.drop(t, drops[0])
			if err != nil {
				m.explain(t.lane)
			}
			m.over1(t)
			drops = drops[1:]
		} else {
			err = fmt.Errorf("job %d leaves its lane for nothing", t.id)
		}
		if err != nil {
			return false, err
		}
	}
	if len(starts)+len(drops) > 0 {
		return false, fmt.Errorf("%d starts and %d drops leave no lane", len(starts), len(drops))
	}
	return true, nil
}

// heads reads the first jobs of lanes; an empty one leaves its index.
func (m *model) heads(lanes []envelope.Lane) [][]schedule.Head {
	all := make([][]schedule.Head, len(lanes))
	for i, lane := range lanes {
		jobs := m.lanes[lane]
		for _, t := range jobs[:min(len(jobs), 1+m.IntN(4))] {
			all[i] = append(all[i], headOf(t))
		}
		if len(jobs) == 0 {
			delete(m.due[index(lane)], lane.Member())
		}
	}
	return all
}

// front returns the members of an index from a bound on, in their order.
func front(of map[string]int64, s schedule.Span) []schedule.Bound {
	var found []schedule.Bound
	for name, at := range of {
		if at > s.From || at == s.From && (s.After == "" || name > s.After) {
			b := schedule.Bound{At: at, Member: name}
			b.Name, b.Label = envelope.ParseMember(name)
			found = append(found, b)
		}
	}
	slices.SortFunc(found, func(a, b schedule.Bound) int {
		return cmp.Or(cmp.Compare(a.At, b.At), strings.Compare(a.Member, b.Member))
	})
	return found[:min(s.N, len(found))]
}

// amend writes what there is to write before more is decided, and reads what is needed.
func (m *model) amend() {
	c := m.s.Amend(m.now)
	m.write(c)
	m.look(c)()
}

// write writes what rules remember, and bounds of lanes.
func (m *model) write(c schedule.Commit) {
	for _, st := range c.States {
		m.states[st.Scope] = state{st.Text, st.Until}
	}
	for _, p := range c.Parks {
		if _, there := m.due[index(p.Lane)][p.Lane.Member()]; there {
			m.due[index(p.Lane)][p.Lane.Member()] = p.At
		}
	}
}

// look reads what a commit needs. What it returns tells the scheduler, some time later.
func (m *model) look(c schedule.Commit) (learn func()) {
	found := schedule.Found{
		Tenants: front(m.tenants, c.Needs.Tenants), Heads: m.heads(c.Needs.Heads), Waiting: make([]int64, len(c.Needs.States)),
	}
	for _, need := range c.Needs.Lanes {
		found.Fronts = append(found.Fronts, front(m.due[fmt.Sprint(need.Tenant, " ", need.Priority)], need.Span))
	}
	for _, scope := range c.Needs.States {
		found.States = append(found.States, m.state(scope))
	}
	return func() { m.s.Learn(c, found, m.now) }
}
