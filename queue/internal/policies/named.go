package policies

import (
	"slices"

	"github.com/waterclock/waterclock/internal/limits"
	"github.com/waterclock/waterclock/internal/policyfile"
	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// named are the limits by name, as the scheduler asks for them. It is a [schedule.Named].
type named struct {
	set    *limits.Set[bound]
	counts bool // one of them limits how much runs at once
}

// A bound is a limit by name, or one of its values, as the scheduler knows it.
type bound struct {
	rules       *rules.Set
	concurrency schedule.Concurrency
	leased      bool
	capacity    int
	shared      *schedule.Shared // for any scope; nil if the rules are decided here
}

func compileBounds(b policyfile.Bounds) bound {
	compiled := bound{rules: compileRules(b.Rules), concurrency: schedule.Concurrency(b.Concurrency), leased: b.Leased, capacity: b.Capacity}
	if b.Shared && len(b.Rules) > 0 {
		grants := rules.Compile(0, rules.Rule{Kind: rules.Granted})
		compiled.shared = &schedule.Shared{Parts: []schedule.Part{{Key: b.Counters, Rules: b.Rules}}, Grants: grants}
	}
	return compiled
}

func (b bound) limit(scope string) schedule.Limit {
	l := schedule.Limit{Scope: scope, Rules: b.rules, Concurrency: b.concurrency, Capacity: b.capacity, Leased: b.leased && b.concurrency.Limits()}
	if b.shared != nil {
		l.Shared = b.shared.Of(scope)
	}
	return l
}

func compileNamed(f policyfile.File) schedule.Named {
	if len(f.Limits) == 0 {
		return nil
	}
	n := named{}
	n.set = limits.Compile(f, func(b policyfile.Bounds) bound {
		n.counts = n.counts || b.Concurrency != (policyfile.Concurrency{})
		return compileBounds(b)
	})
	return n
}

// Counts reports whether one of the limits limits how much runs at once.
func (n named) Counts() bool { return n.counts }

// action is what limits know of a job.
func action(lane envelope.Lane, env *envelope.Envelope) limits.Action {
	return limits.Action{Tenant: lane.Tenant, User: lane.User, Type: env.Type, Keys: env.Keys, Cost: env.Cost, Costs: env.Costs}
}

// Job adds the limits that a job is subject to, and returns the label of its lane. One that lacks what a limit needs is not subject
// to it: if the limit refuses such jobs, there was no such limit when it was offered.
func (n named) Job(uses []schedule.Use, lane envelope.Lane, env *envelope.Envelope) ([]schedule.Use, string, error) {
	var room [128]byte
	label := room[:0]
	invalid := n.set.Each(action(lane, env), func(u limits.Use[bound]) {
		uses = append(uses, use(u))
		label = u.AppendLabel(label, u.Bounds.capacity > 0)
	})
	return uses, string(label), invalid
}

// Lane returns the limits that the jobs of a lane are subject to, as its label says.
func (n named) Lane(lane envelope.Lane) []schedule.Use {
	labelled := n.set.Labelled(lane.Tenant, lane.User, lane.Label)
	uses := make([]schedule.Use, len(labelled))
	for i, u := range labelled {
		uses[i] = use(u)
	}
	return uses
}

func use(u limits.Use[bound]) schedule.Use {
	scope := u.Scope()
	if u.Limit == limits.Queue { // shared by the partitions of the queue: its scope is that of a limit by name
		scope = envelope.ScopeOfLimit(u.Limit, nil)
	}
	return schedule.Use{
		Limit: u.Bounds.limit(scope),
		Name:  u.Limit, Fields: u.Fields, Cost: u.Cost, OfUser: slices.Contains(u.Fields, limits.User),
	}
}

// Scope returns the limit of a scope.
func (n named) Scope(scope string) (schedule.Limit, bool) {
	b, there := n.set.InForce(scope)
	return b.limit(scope), there
}
