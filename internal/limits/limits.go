// Package limits says which limits of a policy file an action is subject to, whom each of them counts
// for, and how much the action costs of it.
//
// Everybody has three: of the queue, of a tenant, of a user. The others have names. All of them are
// answered alike, as [Use]s:
//
//	file, err := policyfile.ParseWithLimits("policies.yaml", data)
//	uses, err := limits.Compile(file).Of(limits.Action{Tenant: "school-7", User: "teacher-42", Type: "marketing"})
package limits

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/waterclock/waterclock/internal/policyfile"
)

// MostNamed is how many limits by name one action is subject to at most.
const MostNamed = 8

// The names of the limits that everybody has.
const (
	Queue  = "queue"
	Tenant = "tenant"
	User   = "user"
)

// An Action is what limits know of a job, or of a call.
type Action struct {
	Tenant, User, Type string
	Keys               map[string]string // fields of its own: keys.domain is Keys["domain"]
	Cost               int               // 0 means 1
	Costs              map[string]int    // by unit; a limit is not about an action that costs nothing in its unit
}

// A Use is a limit that an action is subject to.
type Use struct {
	Limit  string
	Values []string // of the fields of the limit's key, for which it counts
	Cost   int
	policyfile.Bounds
}

// Scope returns a name of whom the limit counts for. No two have the same.
func (u Use) Scope() string {
	parts := []string{"l", u.Limit}
	switch u.Limit {
	case Queue:
		return "q"
	case Tenant:
		parts = []string{"t"}
	case User:
		parts = []string{"u"}
	}
	for _, value := range u.Values {
		parts = append(parts, escape.Replace(value))
	}
	return strings.Join(parts, ":")
}

var escape = strings.NewReplacer("%", "%25", ":", "%3A", " ", "%20")

// A Missing is the error of an action that lacks what a limit with missing: refuse needs.
type Missing struct{ Limit, Field string }

func (m *Missing) Error() string {
	return fmt.Sprintf("limit %s needs %s, and it is missing", m.Limit, m.Field)
}

// A Set are the limits of a policy file. It is immutable.
type Set struct {
	file  policyfile.File
	named []named // in the order of their names
}

type named struct {
	name string
	policyfile.Limit
	patterns []string // of Each, the most specific first
}

// Compile returns the limits of a valid file.
func Compile(f policyfile.File) *Set {
	s := &Set{file: f}
	for _, name := range slices.Sorted(maps.Keys(f.Limits)) {
		l := named{name: name, Limit: f.Limits[name]}
		for value := range l.Each {
			if strings.Contains(value, "*") {
				l.patterns = append(l.patterns, value)
			}
		}
		slices.SortFunc(l.patterns, func(a, b string) int { // by how much is written out
			return cmp.Or(literals(b)-literals(a), strings.Compare(a, b))
		})
		s.named = append(s.named, l)
	}
	return s
}

func literals(pattern string) int { return len(pattern) - strings.Count(pattern, "*") }

// Of returns the limits that an action is subject to: the queue's, its tenant's and its user's, and
// those by name in the order of their names. The error says what the action lacks, or that
// too many are about it.
func (s *Set) Of(a Action) ([]Use, error) {
	cost := cmp.Or(a.Cost, 1)
	uses := []Use{{Limit: Queue, Cost: cost, Bounds: policyfile.Bounds{Limits: s.file.Queue}}}
	if a.Tenant != "" {
		policy := s.policy(a.Tenant)
		uses = append(uses, Use{Tenant, []string{a.Tenant}, cost, policyfile.Bounds{Limits: policy.Tenant, Capacity: policy.Capacity}})
		if a.User != "" {
			uses = append(uses, Use{User, []string{a.Tenant, a.User}, cost, policyfile.Bounds{Limits: policy.User}})
		}
	}
	three := len(uses)
	for i := range s.named {
		l := &s.named[i]
		if !l.about(a.Type) {
			continue
		}
		values, lacks := l.values(a)
		cost, counted := l.cost(a)
		if lacks == "" && !counted {
			lacks = "costs." + l.Counts
		}
		if lacks != "" && l.Refuse {
			return nil, &Missing{l.name, lacks}
		}
		bounds := l.of(strings.Join(values, ","))
		if lacks != "" || bounds.Unlimited || cost == 0 {
			continue
		}
		uses = append(uses, Use{l.name, values, cost, bounds})
	}
	if n := len(uses) - three; n > MostNamed {
		return nil, fmt.Errorf("%d limits by name are about it, from %s to %s; want %d at most", n, uses[three].Limit, uses[len(uses)-1].Limit, MostNamed)
	}
	return uses, nil
}

func (s *Set) policy(tenant string) policyfile.Policy {
	name, known := s.file.Tenants[tenant]
	if !known {
		name = s.file.Default
	}
	return s.file.Policies[name]
}

// about reports whether the limit is about jobs of a type.
func (l *named) about(typ string) bool {
	return len(l.Types) == 0 || slices.ContainsFunc(l.Types, func(pattern string) bool { return matches(pattern, typ) })
}

// values returns the values of the key's fields, or the name of one that the action lacks.
func (l *named) values(a Action) (values []string, lacks string) {
	for _, field := range l.Key {
		value := ""
		switch field {
		case "tenant":
			value = a.Tenant
		case "user":
			value = a.User
		case "type":
			value = a.Type
		default:
			value = a.Keys[strings.TrimPrefix(field, policyfile.KeyField)]
		}
		if value == "" {
			return nil, field
		}
		values = append(values, value)
	}
	return values, ""
}

// cost returns what the action costs of what the limit counts, and whether it says so.
func (l *named) cost(a Action) (cost int, counted bool) {
	switch l.Counts {
	case policyfile.CountsJobs:
		return 1, true
	case "":
		return cmp.Or(a.Cost, 1), true
	}
	cost, counted = a.Costs[l.Counts]
	return cost, counted
}

// of returns the bounds for a value of the key: its own, those of the most specific pattern, or the limit's.
func (l *named) of(value string) policyfile.Bounds {
	if bounds, exact := l.Each[value]; exact {
		return bounds
	}
	for _, pattern := range l.patterns {
		if matches(pattern, value) {
			return l.Each[pattern]
		}
	}
	return l.Bounds
}

// matches reports whether a text is as a pattern says, in which * stands for any text.
func matches(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	first, last := parts[0], parts[len(parts)-1]
	if len(parts) == 1 {
		return pattern == text
	}
	if len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		_, rest, found := strings.Cut(text, part)
		if !found {
			return false
		}
		text = rest
	}
	return true
}
