// Package limits says which limits of a policy file an action is subject to, whom each of them counts
// for, and how much the action costs of it.
//
// Everybody has three: of the queue, of a tenant, of a user. The others have names. All of them are
// answered alike, as [Use]s:
//
//	file, err := policyfile.Parse("policies.yaml", data)
//	set := limits.Compile(file, func(b policyfile.Bounds) []throttle.Rule { return b.Rules })
//	uses, err := set.Of(limits.Action{Tenant: "school-7", User: "teacher-42", Type: "marketing"})
package limits

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/policyfile"
)

// SharedKeys is what the keys of shared limits begin with. No queue has such a name, and the braces put all of them into one slot of a
// cluster, so that limits decide together.
const SharedKeys = "wc:{:limits}"

// SharedSlack is how much later than its slot an action may start that a shared limit counts: the grace of a queue's jobs, and what two
// clocks are in doubt.
const SharedSlack = 20 * time.Millisecond

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

// A Use is a limit that an action is subject to. B is what its bounds were compiled to.
type Use[B any] struct {
	Limit  string
	Fields []string // of the limit's key; nil for the limits that everybody has
	Values []string // of these fields, for which it counts
	Cost   int      // in what the limit counts
	Bounds B
}

// Scope returns a name of whom the limit counts for. No two have the same.
func (u Use[B]) Scope() string {
	switch u.Limit {
	case Queue:
		return "q"
	case Tenant:
		return scope("t", "", u.Values)
	case User:
		return scope("u", "", u.Values)
	}
	return scope(named, u.Limit, u.Values)
}

// named begins the scopes of limits by name.
const named = "l:"

// scope writes a scope in one piece of memory: it is asked for each job.
func scope(head, name string, values []string) string {
	size := len(head) + len(name)
	for _, value := range values {
		size += 1 + len(value)
	}
	var b strings.Builder
	b.Grow(size)
	b.WriteString(head)
	b.WriteString(name)
	for _, value := range values {
		b.WriteByte(':')
		b.WriteString(escape.escape(value))
	}
	return b.String()
}

var (
	escape   = newEscaper("%: ", "%", "%25", ":", "%3A", " ", "%20")
	unescape = strings.NewReplacer("%25", "%", "%3A", ":", "%20", " ")
)

// A Missing is the error of an action that lacks what a limit with missing: refuse needs.
type Missing struct{ Limit, Field string }

func (m *Missing) Error() string {
	return fmt.Sprintf("limit %s needs %s, and it is missing", m.Limit, m.Field)
}

// A Set are the limits of a policy file. It is immutable.
type Set[B any] struct {
	file    policyfile.File
	compile func(policyfile.Bounds) B
	limits  []limit[B] // in the order of their names
}

type limit[B any] struct {
	name string
	policyfile.Limit
	bounds   bounds[B]
	each     map[string]bounds[B]
	patterns []string // of each, the most specific first
}

type bounds[B any] struct {
	policyfile.Bounds
	compiled B
}

// Compile returns the limits of a valid file. What bounds are to a caller is compiled once for each limit. The overrides of
// the file are those that count: of limits by name here, and of the other three where a caller has them.
func Compile[B any](f policyfile.File, compile func(policyfile.Bounds) B) *Set[B] {
	s := &Set[B]{file: f, compile: compile}
	both := func(b policyfile.Bounds) bounds[B] { return bounds[B]{b, compile(b)} }
	for _, name := range slices.Sorted(maps.Keys(f.Limits)) {
		l := limit[B]{name: name, Limit: f.Limits[name], each: make(map[string]bounds[B])}
		l.bounds = both(l.Bounds)
		for value, b := range l.Each {
			l.each[value] = both(b)
			if strings.Contains(value, "*") {
				l.patterns = append(l.patterns, value)
			}
		}
		slices.SortFunc(l.patterns, func(a, b string) int { // by how much is written out
			return cmp.Or(literals(b)-literals(a), strings.Compare(a, b))
		})
		s.limits = append(s.limits, l)
	}
	for _, o := range f.Overrides {
		if l := s.find(o.Limit); l != nil {
			l.each[l.value(o.Values)] = both(o.Over(l.of(o.Values).Bounds))
		}
	}
	return s
}

func literals(pattern string) int { return len(pattern) - strings.Count(pattern, "*") }

// Of returns the limits that an action is subject to: the queue's, its tenant's and its user's, and
// those by name in the order of their names. The error says what the action lacks, or that
// too many are about it.
func (s *Set[B]) Of(a Action) ([]Use[B], error) {
	cost := cmp.Or(a.Cost, 1)
	uses := []Use[B]{{Limit: Queue, Cost: cost, Bounds: s.compile(policyfile.Bounds{Limits: s.file.Queue})}}
	if a.Tenant != "" {
		policy := s.file.Of(a.Tenant)
		uses = append(uses, Use[B]{Limit: Tenant, Values: []string{a.Tenant}, Cost: cost, Bounds: s.compile(policyfile.Bounds{Limits: policy.Tenant})})
		if a.User != "" {
			uses = append(uses, Use[B]{Limit: User, Values: []string{a.Tenant, a.User}, Cost: cost, Bounds: s.compile(policyfile.Bounds{Limits: policy.User})})
		}
	}
	named, err := s.Named(a)
	return append(uses, named...), err
}

// Named returns the limits by name that an action is subject to, in the order of their names, [MostNamed] at most. The
// error says what the action lacks, or that too many are about it; the limits are those that there are nevertheless.
func (s *Set[B]) Named(a Action) (uses []Use[B], err error) {
	err = s.Each(a, func(u Use[B]) { uses = append(uses, u) })
	return uses, err
}

// Each calls a function with each limit that [Set.Named] returns.
func (s *Set[B]) Each(a Action, do func(Use[B])) (err error) {
	n, first, last := 0, "", ""
	for i := range s.limits {
		l := &s.limits[i]
		if !l.about(a.Type) {
			continue
		}
		values, lacks := l.values(a)
		cost, counted := l.cost(a)
		if lacks == "" && !counted {
			lacks = "costs." + l.Counts
		}
		if lacks != "" && l.Refuse && err == nil {
			err = &Missing{l.name, lacks}
		}
		bounds := l.of(values)
		if lacks != "" || bounds.Unlimited || cost == 0 {
			continue
		}
		use := Use[B]{l.name, l.Key, values, cost, bounds.compiled}
		if l.name == Queue { // as the partitions of a queue share it: everybody has it
			do(use)
			continue
		}
		if n++; n <= MostNamed {
			do(use)
		}
		if n == 1 {
			first = l.name
		}
		last = l.name
	}
	if n > MostNamed {
		return fmt.Errorf("%d limits by name are about it, from %s to %s; want %d at most", n, first, last, MostNamed)
	}
	return err
}

// Any reports whether there are limits by name.
func (s *Set[B]) Any() bool { return len(s.limits) > 0 }

// Has reports whether there is a limit of that name.
func (s *Set[B]) Has(name string) bool { return s.find(name) != nil }

// InForce returns the bounds of a scope of a limit by name; false if there is none any more.
func (s *Set[B]) InForce(scope string) (compiled B, there bool) {
	rest, is := strings.CutPrefix(scope, named)
	if !is {
		return compiled, false
	}
	words := strings.Split(rest, ":")
	l := s.find(words[0])
	if l == nil || len(words)-1 != len(l.Key) {
		return compiled, false
	}
	values := words[1:]
	for i, value := range values {
		values[i] = unescape.Replace(value)
	}
	bounds := l.of(values)
	return bounds.compiled, !bounds.Unlimited
}

func (s *Set[B]) find(name string) *limit[B] {
	i, there := slices.BinarySearchFunc(s.limits, name, func(l limit[B], name string) int { return strings.Compare(l.name, name) })
	if !there {
		return nil
	}
	return &s.limits[i]
}

// about reports whether the limit is about jobs of a type.
func (l *limit[B]) about(typ string) bool {
	return len(l.Types) == 0 || slices.ContainsFunc(l.Types, func(pattern string) bool { return matches(pattern, typ) })
}

// values returns the values of the key's fields, or the name of one that the action lacks.
func (l *limit[B]) values(a Action) (values []string, lacks string) {
	if len(l.Key) > 0 {
		values = make([]string, 0, len(l.Key))
	}
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
func (l *limit[B]) cost(a Action) (cost int, counted bool) {
	switch l.Counts {
	case policyfile.CountsJobs:
		return 1, true
	case "":
		return cmp.Or(a.Cost, 1), true
	}
	cost, counted = a.Costs[l.Counts]
	return cost, counted
}

// of returns the bounds for the values of the key: their own, those of the most specific pattern, or the limit's. Several
// values stand as [JoinKey] writes them: a comma in one of them separates nothing.
func (l *limit[B]) of(values []string) bounds[B] {
	if len(l.each) == 0 {
		return l.bounds
	}
	value := l.value(values)
	if bounds, exact := l.each[value]; exact {
		return bounds
	}
	for _, pattern := range l.patterns {
		if matches(pattern, value) {
			return l.each[pattern]
		}
	}
	return l.bounds
}

// value returns the values of the key as they stand in each.
func (l *limit[B]) value(values []string) string {
	if len(values) == 1 {
		return values[0]
	}
	return JoinKey(values)
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
