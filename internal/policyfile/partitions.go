package policyfile

import (
	"fmt"
	"maps"
	"slices"

	"github.com/waterclock/waterclock/throttle"
)

// A queue with several partitions has all jobs of a tenant in one of them. What limits a tenant, or its users, is decided there. What
// limits jobs of several partitions is decided where shared limits are: the rules of the queue, and those of limits by name whose key
// has no tenant. Concurrency limits that count jobs of several partitions lease places to them.

// Divided reports whether the queue has several partitions.
func (f File) Divided() bool { return f.Partitions > 1 }

// Across returns the file as each partition of the queue obeys it: the partitions share the limits that count jobs of several. The
// rules of the queue are one of these limits, with the name queue; its hours stay where they are, since they remember nothing.
func (f File) Across(queue string) File {
	if !f.Divided() {
		return f
	}
	all := make(map[string]Limit, len(f.Limits)+1)
	for name, l := range f.Limits {
		if l.spans() {
			l.Bounds, l.Each = l.across(queue), maps.Clone(l.Each)
			for value, b := range l.Each {
				l.Each[value] = b.across(queue)
			}
		}
		all[name] = l
	}
	own, spanning := byHours(f.Queue.Rules)
	common := Bounds{Limits: Limits{Rules: spanning, Concurrency: f.Queue.Concurrency}}
	if !common.limitsNothing() || slices.ContainsFunc(f.Overrides, func(o Override) bool { return o.Limit == "queue" }) {
		all["queue"] = Limit{Bounds: common.across(queue)}
	}
	f.Queue, f.Limits = Limits{Rules: own}, all
	return f
}

// spans reports whether a limit counts jobs of several partitions.
func (l Limit) spans() bool { return !slices.Contains(l.Key, "tenant") }

func (b Bounds) across(queue string) Bounds {
	if !b.Shared {
		b.Shared, b.Leased, b.Counters = true, true, queue+"/"
	}
	return b
}

// byHours tells hours from other rules.
func byHours(all []throttle.Rule) (hours, others []throttle.Rule) {
	for _, r := range all {
		if r.Kind() == throttle.KindHours {
			hours = append(hours, r)
		} else {
			others = append(others, r)
		}
	}
	return hours, others
}

const wantNoneAcross = "none: each partition counts by itself what waits, and a limit without tenant in its key is about jobs of several"

// checkPartitions finds what does not hold over several partitions.
func (f File) checkPartitions() *Problem {
	if !f.Divided() {
		return nil
	}
	_, spanning := byHours(f.Queue.Rules)
	for i, r := range f.Queue.Rules {
		if !shareableAcross(r) && slices.ContainsFunc(spanning, func(s throttle.Rule) bool { return s.String() == r.String() }) {
			return &Problem{Path: fmt.Sprintf("queue.rules[%d]", i), Text: r.String() + " in a queue with partitions; want hours, " + wantAcross}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Limits)) {
		l := f.Limits[name]
		if !l.spans() {
			continue
		}
		path := join("limits", name)
		if wrong := l.checkAcross(path); wrong != nil {
			return wrong
		}
		for _, value := range slices.Sorted(maps.Keys(l.Each)) {
			if wrong := l.Each[value].checkAcross(join(path+".each", value)); wrong != nil {
				return wrong
			}
		}
	}
	for i, o := range f.Overrides {
		if l, named := f.Limits[o.Limit]; o.Limit == "queue" || named && l.spans() {
			if wrong := o.checkAcross(fmt.Sprintf("overrides[%d]", i)); wrong != nil {
				return wrong
			}
		}
	}
	return nil
}

func (b Bounds) checkAcross(path string) *Problem {
	if b.Capacity > 0 {
		return &Problem{Path: path + ".capacity", Value: fmt.Sprint(b.Capacity), Text: wantNoneAcross}
	}
	for i, r := range b.Rules {
		if !shareableAcross(r) {
			return &Problem{Path: fmt.Sprintf("%s.rules[%d]", path, i), Text: r.String() + " over several partitions; want " + wantAcross}
		}
	}
	return nil
}
