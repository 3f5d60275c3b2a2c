package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/human"
	"github.com/waterclock/waterclock/internal/judged"
	"github.com/waterclock/waterclock/internal/limits"
	"github.com/waterclock/waterclock/internal/policyfile"
	"github.com/waterclock/waterclock/throttle"
)

// A start is judged by the rules that were in force at its slot. Overrides divide the time: between two instants at which one
// of them began or ended is a regime. The starts that a limit counts for one subject while its rules stayed the same are an
// era. What a rule remembers of the eras before counts in an era, where that is certain (docs/rules.md: When rules change).
//
// Jobs that workers had when an override was set, or ended before its time, start by the rules of before, beside the first ones
// by the rules of then. So of whom it names nothing is judged for so long; afterwards a start is right if it is right by a
// change at either end of that time.
const settling = time.Second

// A regime is the rules in force from an instant on.
type regime struct {
	from      time.Time
	set       *limits.Set[[]throttle.Rule]
	overrides map[string][]throttle.Rule // by scope
}

// regimes returns those of a policy file and overrides, the first one first. What people did by hand counts so much later.
func regimes(f policyfile.File, overrides []pastOverride, late time.Duration) (all []regime) {
	begin := func(o pastOverride) time.Time { return o.Since.Add(late) }
	end := func(o pastOverride) time.Time {
		if !o.Ended.IsZero() && o.Ended.Add(late).Before(o.Until) {
			return o.Ended.Add(late)
		}
		return o.Until
	}
	edges := []time.Time{{}}
	for _, o := range overrides {
		edges = append(edges, begin(o), end(o))
	}
	slices.SortFunc(edges, time.Time.Compare)
	for _, from := range slices.CompactFunc(edges, time.Time.Equal) {
		r := regime{from: from, overrides: make(map[string][]throttle.Rule)}
		f.Overrides = nil
		for _, o := range overrides {
			if !begin(o).After(from) && from.Before(end(o)) {
				by := policyfile.Override{Limit: o.Limit, Values: o.Key, Bounds: policyfile.Bounds{Limits: policyfile.Limits{Rules: o.Rules}}}
				f.Overrides = append(f.Overrides, by)
				r.overrides[limits.Use[int]{Limit: o.Limit, Values: o.Key}.Scope()] = o.Rules
			}
		}
		r.set = limits.Compile(f, func(b policyfile.Bounds) []throttle.Rule { return b.Rules })
		all = append(all, r)
	}
	return all
}

// uses returns the limits that a start is subject to.
func (r regime) uses(s start) []limits.Use[[]throttle.Rule] {
	uses, _ := r.set.Of(limits.Action{Tenant: s.Tenant, User: s.User, Type: s.Type, Keys: s.Keys, Cost: s.Cost, Costs: s.Costs})
	for i, use := range uses {
		if rules, is := r.overrides[use.Scope()]; is {
			uses[i].Bounds = rules
		}
	}
	return uses
}

// An era is the starts of one subject while its rules stayed the same, by their slots.
type era struct {
	subject string
	rules   []throttle.Rule
	starts  []charge
}

// A charge is a start as one limit counts it.
type charge struct {
	slot, started time.Time
	cost          int
}

// check returns every start that broke a rule of its queue, tenant or user, or of a limit by name.
func check(starts []start, f policyfile.File, overrides []pastOverride) []throttle.Violation {
	broken := checkBy(starts, regimes(f, overrides, 0))
	if len(broken) == 0 || len(overrides) == 0 {
		return broken
	}
	type place struct {
		subject string
		at      int64
	}
	late := make(map[place]bool)
	for _, v := range checkBy(starts, regimes(f, overrides, settling)) {
		late[place{v.Subject, v.At.UnixNano()}] = true
	}
	return slices.DeleteFunc(broken, func(v throttle.Violation) bool {
		return !late[place{v.Subject, v.At.UnixNano()}] || unsettled(v, overrides)
	})
}

// unsettled reports whether somebody had just changed the rules of a subject by hand.
func unsettled(v throttle.Violation, overrides []pastOverride) bool {
	just := func(changed time.Time) bool { return !v.At.Before(changed) && v.At.Before(changed.Add(settling)) }
	return slices.ContainsFunc(overrides, func(o pastOverride) bool {
		return (just(o.Since) || just(o.Ended)) && v.Subject == counted(limits.Use[[]throttle.Rule]{Limit: o.Limit, Values: o.Key})
	})
}

func checkBy(starts []start, all []regime) (broken []throttle.Violation) {
	starts = slices.Clone(starts)
	slices.SortStableFunc(starts, func(a, b start) int { return a.Slot.Compare(b.Slot) })
	byScope := make(map[string][]era)
	for _, s := range starts {
		for len(all) > 1 && !s.Slot.Before(all[1].from) {
			all = all[1:]
		}
		for _, use := range all[0].uses(s) {
			scope := use.Scope()
			eras := byScope[scope]
			if n := len(eras); n == 0 || !slices.Equal(eras[n-1].rules, use.Bounds) {
				eras = append(eras, era{subject: counted(use), rules: use.Bounds})
			}
			last := &eras[len(eras)-1]
			last.starts = append(last.starts, charge{s.Slot, s.Started, use.Cost})
			byScope[scope] = eras
		}
	}
	for _, eras := range byScope {
		for k := range eras {
			broken = append(broken, eras[k].judge(eras[:k])...)
		}
	}
	return broken
}

// counted names whom a limit counts for.
func counted(use limits.Use[[]throttle.Rule]) string {
	switch use.Limit {
	case limits.Queue:
		return "the queue"
	case limits.Tenant, limits.User:
		return subject(use.Values...)
	}
	return strings.TrimSpace("limit " + use.Limit + " " + subject(use.Values...))
}

// judge returns the starts of the era that broke its rules.
func (e era) judge(before []era) (broken []throttle.Violation) {
	for _, together := range judged.Together(e.rules) {
		rule := together[0]
		log := e.log(rule)
		own := make(map[int64]bool)
		for _, event := range log {
			own[event.At.UnixNano()] = true
		}
		for _, v := range throttle.Verify(append(memory(before, rule, e.starts[0].slot), log...), together) {
			if own[v.At.UnixNano()] {
				broken = append(broken, v)
			}
		}
	}
	return broken
}

// log returns the starts, or their slots where those are what a rule promises.
func (e era) log(rule throttle.Rule) []throttle.Event {
	log := make([]throttle.Event, len(e.starts))
	for i, s := range e.starts {
		log[i] = throttle.Event{Subject: e.subject, At: s.slot, Cost: s.cost}
		if judged.ByStarts(rule) {
			log[i].At = s.started
		}
	}
	return log
}

// memory returns what a rule remembers of earlier eras when one begins: of a leak its last slot, of other rules what they
// count, as far back as it was counted.
func memory(eras []era, rule throttle.Rule, begin time.Time) (log []throttle.Event) {
	for k := len(eras) - 1; k >= 0 && eras[k].feeds(rule); k-- {
		its := eras[k].log(rule)
		if rule.Kind() == throttle.KindLeak {
			return its[len(its)-1:]
		}
		log = append(its, log...)
		if its[0].At.Before(begin.Add(-2 * rule.Period())) {
			break
		}
	}
	return log
}

// feeds reports whether a rule that comes after the era knows all that it counts of it: the era has a rule of its kind, and
// that looks as far back. A token bucket knows how many tokens are missing, and not why: it is taken to be full.
func (e era) feeds(rule throttle.Rule) bool {
	rolling := func(r throttle.Rule) bool {
		return r.Kind() == throttle.KindWindow || r.Kind() == throttle.KindSpacing || r.Kind() == throttle.KindWarmup && r.Unit() == ""
	}
	return slices.ContainsFunc(e.rules, func(r throttle.Rule) bool {
		if r.Shadows() || r.CountsDropped() != rule.CountsDropped() {
			return false
		}
		switch rule.Kind() {
		case throttle.KindLeak:
			return r.Kind() == rule.Kind()
		case throttle.KindWindow, throttle.KindSpacing:
			return rolling(r) && r.Period() >= rule.Period()
		case throttle.KindWarmup:
			if rolling(rule) {
				return rolling(r) && r.Period() >= rule.Period()
			}
			return r.Unit() == rule.Unit() && r.Zone() == rule.Zone()
		case throttle.KindFixedWindow, throttle.KindSlidingCounter:
			return r.Kind() == rule.Kind() && r.Period() == rule.Period() && r.Buckets() == rule.Buckets()
		case throttle.KindCalendar:
			return r.Unit() == rule.Unit() && r.Zone() == rule.Zone()
		}
		return false
	})
}

// overridesOf returns the overrides of rules, of what limits list --all --json prints, that were in force during starts.
func overridesOf(text []byte, f policyfile.File, starts []start) (during []pastOverride, err error) {
	var all []pastOverride
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&all); err != nil {
		return nil, fmt.Errorf("want what limits list --all --json prints: %w", err)
	}
	first := slices.MinFunc(starts, func(a, b start) int { return a.Slot.Compare(b.Slot) }).Slot
	last := slices.MaxFunc(starts, func(a, b start) int { return a.Slot.Compare(b.Slot) }).Slot
	for i, o := range all {
		fields, known := f.Key(o.Limit)
		switch {
		case o.Since.IsZero() || !o.Since.Before(o.Until):
			return nil, fmt.Errorf("item %d, %s: want since, and an until that is later", i, o.Override)
		case len(o.Rules) == 0 || o.Since.After(last) || !o.end().After(first):
			continue
		case !known:
			names := slices.Sorted(maps.Keys(f.Limits))
			return nil, fmt.Errorf("item %d, %s: the policies have no such limit; %s", i, o.Override, human.Suggest(o.Limit, append(names, limits.Queue, limits.Tenant, limits.User)))
		case len(fields) != len(o.Key):
			return nil, fmt.Errorf("item %d, %s: the limit has the key [%s]; want %s of it", i, o.Override, strings.Join(fields, ", "), human.Count(len(fields), "value", "values"))
		}
		during = append(during, o)
	}
	slices.SortStableFunc(during, func(a, b pastOverride) int { return cmp.Compare(a.Since.UnixNano(), b.Since.UnixNano()) })
	return during, nil
}
