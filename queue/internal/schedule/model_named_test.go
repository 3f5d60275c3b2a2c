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

// A namedLimit is a limit by name: of jobs of a type, or of all, for the values of a key.
type namedLimit struct {
	name, typ string // "" is all types
	key       string // "", "tenant", "user", "domain" or "type"
	unit      string // "jobs", "cost" or "tokens"
	bounds
	own map[string]bounds // of scopes that have an override
}

func (n namedLimit) String() string {
	return fmt.Sprintf("%s(%s by %s in %s: %v)", n.name, n.typ, n.key, n.unit, n.bounds)
}

// of returns whom the limit counts a job for, and what that costs; 0 where it does not.
func (n namedLimit) of(lane envelope.Lane, env *envelope.Envelope) (scope string, cost int64) {
	if n.typ != "" && n.typ != env.Type {
		return "", 0
	}
	scope = "l:" + n.name
	switch n.key {
	case "tenant":
		scope += ":" + lane.Tenant
	case "user":
		scope += ":" + lane.Tenant + ":" + lane.User
	case "type":
		scope += ":" + env.Type
	case "domain":
		if env.Keys["domain"] == "" {
			return "", 0
		}
		scope += ":" + env.Keys["domain"]
	}
	switch n.unit {
	case "jobs":
		return scope, 1
	case "cost":
		return scope, int64(env.Cost)
	}
	return scope, int64(env.Costs["tokens"])
}

// nameLimits lets the policies have limits by name, in some worlds. Mostly they keep their names and keys when the
// policies change.
func (m *model) nameLimits() {
	if m.era++; m.era == 1 && m.chance(2) {
		return
	}
	fresh := m.era == 1 || m.moving && m.chance(2)
	if m.era == 1 {
		m.moving = m.chance(4)
	}
	if !fresh && len(m.named) == 0 {
		return
	}
	if fresh {
		m.named = nil
		maps.DeleteFunc(m.overrides, func(scope string, _ override) bool { return scope[0] == 'l' })
		for i := range 1 + m.IntN(3) {
			m.named = append(m.named, namedLimit{
				name: fmt.Sprint("n", i), typ: pick(m, "", "x", "y"), key: pick(m, "", "", "tenant", "user", "domain", "domain", "type"),
				unit: pick(m, "jobs", "cost", "tokens"),
			})
		}
	}
	m.named = slices.Clone(m.named)
	for i := range m.named {
		n := &m.named[i]
		n.set, n.limits = m.randomRules(2)
		n.concurrency = schedule.Concurrency{}
		if !m.moving && m.chance(4) {
			n.concurrency.Jobs = pick(m, 1, 2, 5)
		}
	}
}

// counts reports whether a scope is one of the limit's.
func (n namedLimit) counts(scope string) bool {
	return scope == "l:"+n.name || strings.HasPrefix(scope, "l:"+n.name+":")
}

func (n namedLimit) limit(scope string) schedule.Limit {
	b, own := n.own[scope]
	if !own {
		b = n.bounds
	}
	limit := schedule.Limit{Scope: scope, Rules: b.set, Concurrency: b.concurrency}
	if b.shared {
		all := schedule.Shared{Parts: []schedule.Part{{}}, Grants: rules.Compile(0, rules.Rule{Kind: rules.Granted})}
		limit.Shared = all.Of(scope)
	}
	return limit
}

// subject gives a job what limits by name are about.
func (m *model) subject(env *envelope.Envelope) {
	if len(m.named) == 0 {
		return
	}
	env.Type = pick(m, "x", "y")
	if !m.chance(4) {
		env.Keys = map[string]string{"domain": pick(m, "a", "b")}
	}
	if !m.chance(4) {
		env.Costs = map[string]int{"tokens": m.IntN(5)}
	}
}

// namedLimits are what the scheduler asks.
type namedLimits []namedLimit

// The label of a lane are the scopes of its jobs, with signs that it may have.
func (all namedLimits) Job(uses []schedule.Use, lane envelope.Lane, env *envelope.Envelope) (with []schedule.Use, label string, invalid error) {
	var scopes []string
	for _, n := range all {
		if scope, cost := n.of(lane, env); cost > 0 {
			uses = append(uses, n.use(scope, int(cost)))
			scopes = append(scopes, strings.ReplaceAll(scope, ":", "/"))
		}
	}
	return uses, strings.Join(scopes, "&"), nil
}

func (n namedLimit) use(scope string, cost int) schedule.Use {
	return schedule.Use{Limit: n.limit(scope), Name: n.name, Cost: cost, OfUser: n.key == "user"}
}

func (all namedLimits) Lane(lane envelope.Lane) (uses []schedule.Use) {
	for _, scope := range strings.Split(lane.Label, "&") {
		scope = strings.ReplaceAll(scope, "/", ":")
		for _, n := range all {
			if n.counts(scope) {
				uses = append(uses, n.use(scope, map[string]int{"jobs": 1, "cost": 0, "tokens": -1}[n.unit]))
			}
		}
	}
	return uses
}

func (all namedLimits) Scope(scope string) (schedule.Limit, bool) {
	for _, n := range all {
		if n.counts(scope) {
			return n.limit(scope), true
		}
	}
	return schedule.Limit{}, false
}

func (all namedLimits) Counts() bool {
	return slices.ContainsFunc(all, func(n namedLimit) bool {
		limits := n.concurrency.Limits()
		for _, b := range n.own {
			limits = limits || b.concurrency.Limits()
		}
		return limits
	})
}
