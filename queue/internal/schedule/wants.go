package schedule

import (
	"cmp"
	"slices"

	"github.com/waterclock/waterclock/internal/rules"
)

// What a scheduler wants of shared limits: for which lines, and for which jobs in them. How it uses what it gets is in shared.go.

// A Want is that the line of shared limits waits for grants: for which jobs [Scheduler.Costs] tells.
type Want struct {
	Scope string
	Parts []Part
	From  int64 // other limits let none of the first jobs start before
	Ahead int64 // how long before its instant the worker of the first job has to be told, in µs
}

// MostWanted is how many grants one limit wants at a time.
const MostWanted = 64

// Wants returns what shared limits want for whose first waiting jobs there is no grant, and the grants whose instants lie before
// now.
func (s *Scheduler) Wants(now int64) (wants []Want, missed []Missed) {
	for i := range s.wanting {
		for _, g := range i.state.Missed(now) {
			missed = append(missed, Missed{i.name, g, false})
		}
		for _, g := range i.state.Returned() {
			missed = append(missed, Missed{i.name, g, true})
		}
		if !i.waits() && len(i.state.Grants()) == 0 || i.shared == nil || i.gone {
			delete(s.wanting, i)
			continue
		}
		if i.called != nil || i.paused > now || s.queue.paused > now || s.full(&i.subject) {
			continue
		}
		first := s.firstOpen(i, now)
		if first == nil || s.opensFor(i, s.nextOf(i, now), now) < rules.Never {
			continue
		}
		wants = append(wants, Want{i.name, i.shared.Parts, s.wantedFrom(i, first, now), s.aheadOf(first)})
	}
	s.weigh(wants, now)
	slices.SortFunc(wants, func(a, b Want) int { return cmp.Compare(a.Scope, b.Scope) })
	return wants, missed
}

// wantedFrom returns the first instant from now on at which all else lets one of the first lanes of a line start.
func (s *Scheduler) wantedFrom(i *instance, first *lane, now int64) int64 {
	at := s.ungranted(first, now)
	if at > now && len(i.urgent) == 0 {
		for l := range i.passing() {
			if at = min(at, s.ungranted(l, now)); at <= now {
				break
			}
		}
	}
	return at
}

// Weights of wants.
const (
	// weighedFor is for how long, in µs, the tenants of lines are not weighed again.
	weighedFor = 5_000
	// mostWeighed is how many tenants of a line are looked at: the others weigh as much on average.
	mostWeighed = 1000
)

// weigh tells each part of the wants how much the tenants weigh together that wait for it and may start something within the lead. A tenant
// that waits in several lines for one part weighs once.
func (s *Scheduler) weigh(wants []Want, now int64) {
	known := now-s.weighedAt < weighedFor
	for _, want := range wants {
		for _, part := range want.Parts {
			known = known && s.weights[part.Scope] > 0
		}
	}
	if !known {
		s.weights, s.weighedAt = s.weightsOf(wants, now), now
	}
	for k, want := range wants {
		wants[k].Parts = slices.Clone(want.Parts)
		for j, part := range want.Parts {
			wants[k].Parts[j].Weight = max(1, s.weights[part.Scope])
		}
	}
}

// weightsOf returns what the tenants weigh that wait for each part of the wants, by the scopes of the parts.
func (s *Scheduler) weightsOf(wants []Want, now int64) map[string]int {
	type waiting struct {
		part   string
		tenant *tenant
	}
	seen, weights := make(map[waiting]bool), make(map[string]int)
	for _, want := range wants {
		i := s.instances[want.Scope]
		n := min(i.line.len(), mostWeighed)
		all := make([]*tenant, 0, n+len(i.urgent))
		for _, w := range i.line.entries[:n] {
			all = append(all, w.item.tenant)
		}
		for _, l := range i.urgent {
			all = append(all, l.user.tenant)
		}
		all = slices.DeleteFunc(all, func(t *tenant) bool { return s.full(&t.subject) || s.room(&t.subject, now+s.lead) == 0 })
		for _, part := range want.Parts {
			sum := 0
			for _, t := range all {
				if w := (waiting{part.Scope, t}); !seen[w] {
					seen[w] = true
					sum += max(1, t.policy.Weight)
				}
			}
			if n > 0 {
				sum = sum * i.line.len() / n
			}
			weights[part.Scope] += max(sum, 1)
		}
	}
	return weights
}

// firstOpen returns the first lane in line whose tenant may start something within the lead; nil if there is none.
func (s *Scheduler) firstOpen(i *instance, now int64) *lane {
	for {
		first := i.first()
		if first == nil || !s.partIfClosed(i, first.user.tenant, now+s.lead, now) {
			return first
		}
	}
}
