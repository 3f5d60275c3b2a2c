package schedule

import (
	"fmt"
	"slices"
	"strings"
)

// A bundle is an instance that stands for several shared limits by name: those that count a job, for the values of their keys. It is
// asked about where they are decided as one limit is, with what a job costs each of them. It is paused while any of them is.

// bundleScope begins the scopes of bundles. No limit has such a scope, so policies know nothing of a bundle: with others it is
// made again.
const bundleScope = "b:"

// bundled returns the limits of a job with its shared ones as a single one, if there are several.
func (s *Scheduler) bundled(uses []Use) []Use {
	shared := func(u Use) bool { return u.Shared != nil }
	first := slices.IndexFunc(uses, shared)
	if first < 0 || !slices.ContainsFunc(uses[first+1:], shared) {
		return uses
	}
	var scopes []string
	var costs []int
	bundle := Use{Name: uses[first].Name, Limit: Limit{Rules: uses[first].Rules, Shared: &Shared{Grants: uses[first].Shared.Grants}}}
	rest := make([]Use, 0, len(uses))
	for _, use := range uses {
		if use.Shared == nil {
			rest = append(rest, use)
			continue
		}
		scopes, costs = append(scopes, use.Scope), append(costs, use.Cost)
		bundle.Shared.Parts = append(bundle.Shared.Parts, use.Shared.Parts...)
	}
	bundle.Scope = bundleScope + strings.Join(scopes, "&")
	i := s.instance(bundle)
	if i.shared == nil { // made under other policies
		i.limitBy(bundle.Limit)
	}
	i.paused = s.pausedUntil(i)
	bundle.Cost, bundle.each = i.costs.name(costs), costs
	return append(rest, bundle)
}

// bundles reports whether an instance stands for a scope and others.
func (i *instance) bundles(scope string) bool {
	return i.shared != nil && len(i.shared.Parts) > 1 && slices.ContainsFunc(i.shared.Parts, func(p Part) bool { return p.Scope == scope })
}

// pausedUntil returns until when one of the limits is paused for which a bundle stands.
func (s *Scheduler) pausedUntil(i *instance) (until int64) {
	for _, part := range i.shared.Parts {
		until = max(until, s.paused[part.Scope])
	}
	return until
}

// costNames gives each combination of costs a name, which is a cost as the scheduler knows it: a grant is for jobs of one name. The zero
// value has none.
type costNames struct {
	of   map[string]int
	last int
}

// mostNames bounds how many combinations are known. One that was forgotten gets another name.
const mostNames = 10_000

func (c *costNames) name(costs []int) int {
	text := fmt.Sprint(costs)
	if name := c.of[text]; name > 0 {
		return name
	}
	if len(c.of) == mostNames || c.of == nil {
		c.of = make(map[string]int)
	}
	c.last++
	c.of[text] = c.last
	return c.last
}
