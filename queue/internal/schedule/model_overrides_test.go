package schedule_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// Bounds are what limits a scope: rules, compiled and by their definitions, and how much runs at once.
type bounds struct {
	set         *rules.Set
	limits      []limit
	concurrency schedule.Concurrency
	shared      bool // its slots are granted
}

func (b bounds) String() string { return fmt.Sprintf("%v %v", b.limits, b.concurrency) }

// An override replaces rules or concurrency of a scope until an instant: those that it has.
type override struct {
	bounds
	until int64
}

// over returns bounds with what the override says in the place of theirs.
func (o override) over(b bounds) bounds {
	if len(o.limits) > 0 {
		b.set, b.limits = o.set, o.limits
	}
	if o.concurrency.Limits() {
		b.concurrency = o.concurrency
	}
	return b
}

// ends returns when the first override ends.
func (w *world) ends() int64 {
	end := int64(schedule.Never)
	for _, o := range w.overrides {
		end = min(end, o.until)
	}
	return end
}

// endFor returns when the first override ends that governs a job.
func (w *world) endFor(t *task) int64 {
	end := int64(schedule.Never)
	for _, of := range w.counts(t) {
		if o, is := w.overrides[of.scope]; is {
			end = min(end, o.until)
		}
	}
	return end
}

// farthest is how far ahead of now a slot has to lie for the worker that is farthest away, in µs.
const farthest = 60_000

// awaitsEnd tells whether a job may wait for the end of an override that governs it: a worker that is far away could not
// start it before.
func (m *model) awaitsEnd(t *task) bool {
	ahead := t.env.Late
	if m.far {
		ahead = farthest
	}
	end := m.endFor(t)
	return end < schedule.Never && m.slot(t, max(m.now+ahead, m.slots[t.lane]), true) >= end
}

// awaitsOpening tells whether a job may wait for hours to open again: a worker that is far away could not start it before they
// close.
func (m *model) awaitsOpening(t *task) bool {
	ahead := t.env.Late
	if m.far {
		ahead = farthest
	}
	asked := max(m.now+ahead, m.slot(t, max(m.now, m.slots[t.lane]), true))
	return m.slot(t, asked, true)-asked > schedule.Lead
}

// boundsOf returns what limits a scope by now.
func (m *model) boundsOf(scope string) (b bounds) {
	if scope[0] == 'l' {
		for _, n := range m.named {
			if n.counts(scope) {
				b = n.bounds
			}
		}
	} else {
		b = m.base[scope[0]]
	}
	if o, is := m.overrides[scope]; is {
		return o.over(b)
	}
	return b
}

// enact makes the policies that hold from now on. Those of these scopes have other rules.
func (m *model) enact(scopes ...string) {
	queue := m.boundsOf(envelope.QueueScope)
	p := &schedule.Policies{
		Version: m.now, Queue: queue.set, QueueConcurrency: queue.concurrency, Default: "p", Policies: map[string]schedule.Policy{"p": m.policy},
		Tenants: map[string]string{}, Overrides: map[string]schedule.Override{}, Hours: true,
	}
	if end := m.ends(); end < schedule.Never {
		p.Ends = end
	}
	m.law = fmt.Sprintf("queue %v, tenants %v, users %v, at most %d µs, by name %v", m.base['q'], m.base['t'], m.base['u'], m.maxWait, m.named)
	named := slices.Clone(m.named)
	for i := range named {
		named[i].own = map[string]bounds{}
	}
	for scope, o := range m.overrides {
		m.law += fmt.Sprintf(", %s until %d: %v", scope, o.until, o.bounds)
		b := m.boundsOf(scope)
		p.Overrides[scope] = schedule.Override{Until: o.until}
		switch tenant, user := envelope.ParseScope(scope); {
		case scope[0] == 'l':
			for _, n := range named {
				if n.counts(scope) {
					n.own[scope] = b
				}
			}
		case tenant != "":
			p.Tenants[tenant] = "of " + tenant
			own := p.Of(tenant)
			if own.Name == "" {
				own = m.policy
				own.Users = map[string]schedule.UserLimit{}
			}
			if user == "" {
				own.Tenant, own.TenantConcurrency = b.set, b.concurrency
			} else {
				own.Users[user] = schedule.UserLimit{Rules: b.set, Concurrency: b.concurrency}
			}
			p.Policies["of "+tenant] = own
		}
	}
	if len(named) > 0 {
		p.Named = namedLimits(named)
	}
	m.policies = p
	for _, scope := range scopes {
		if led := m.ledgers[scope]; led != nil {
			led.limits, led.since, led.era, led.vague = m.rules(scope), m.now, led.era+1, true
		}
	}
	m.unswept = slices.Sorted(maps.Keys(m.tenants))
}

// overridden draws whom an override names.
func (m *model) overridden() string {
	lane := envelope.Lane{Tenant: fmt.Sprint("t", m.IntN(m.size[0])), User: fmt.Sprint("u", m.IntN(m.size[1]))}
	if len(m.named) > 0 && m.chance(2) {
		n := m.named[m.IntN(len(m.named))]
		n.unit = "jobs"
		env := &envelope.Envelope{Type: pick(m, "x", "y"), Keys: map[string]string{"domain": pick(m, "a", "b")}}
		if scope, _ := n.of(lane, env); scope != "" {
			return scope
		}
	}
	return scopesOf(lane)[pick(m, 0, 1, 1, 2, 2)]
}

// replace sets an override, or ends one before its time.
func (m *model) replace() {
	scope := m.overridden()
	if known := slices.Sorted(maps.Keys(m.overrides)); len(known) > 0 && m.chance(3) {
		scope = known[m.IntN(len(known))]
		m.note("the override of %s ends by hand", scope)
		delete(m.overrides, scope)
		m.enact(scope)
		m.reread()
		return
	}
	o := override{until: m.now + pick[int64](m, 1, 2000, 8000, 30_000, 30_000, 100_000, 400_000, 2_000_000)}
	for len(o.limits) == 0 && !o.concurrency.Limits() {
		o.set, o.limits = m.randomRules(2)
		if m.chance(3) && !(m.moving && scope[0] == 'l') {
			o.concurrency.Jobs = pick(m, 1, 2, 5)
		}
	}
	delete(m.overrides, scope)
	m.overrides[scope] = o
	m.note("override of %s for %d µs: %v", scope, o.until-m.now, o.bounds)
	m.enact(scope)
	m.reread()
}

// reread lets the leader read the policies.
func (m *model) reread() {
	if m.chance(3) {
		m.depose()
	} else {
		m.refresh()
	}
	for m.closed && len(m.unswept) > 0 || len(m.unswept) > 0 && !m.chance(20) {
		m.sweep()
	}
}

// lapsed reports whether an override has ended that the leader still goes by.
func (m *model) lapsed() bool { return m.ends() <= m.now }

// lapse lets overrides end whose time is over. Another one may follow at once.
func (m *model) lapse() {
	if !m.lapsed() {
		return
	}
	var over []string
	for scope, o := range m.overrides {
		if o.until <= m.now {
			over = append(over, scope)
		}
	}
	slices.Sort(over)
	for _, scope := range over {
		delete(m.overrides, scope)
	}
	m.note("overrides end: %s", strings.Join(over, ", "))
	m.enact(over...)
	m.reread()
	if !m.closed && m.chance(3) {
		m.replace()
	}
}

// idle lets the leader see that its policies hold no more: it has decided nothing by them.
func (m *model) idle(c schedule.Commit) {
	if n := len(c.Plan.Left); n > 0 || c.Plan.Next > m.now {
		m.fail(fmt.Errorf("%d jobs are decided by policies that hold no more; next in %d µs", n, c.Plan.Next-m.now))
		return
	}
	m.send(c)
	m.answer()
	m.lapse()
}
