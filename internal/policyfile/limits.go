package policyfile

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/throttle"
)

// A Limit is a limit by name: of some types of jobs, counted for each value of a key.
type Limit struct {
	Types  []string // exact, or patterns with *; nil for all
	Key    []string // fields: tenant, user, type, keys.NAME; nil for one counter for all
	Counts string   // jobs, or a unit; "" for the cost
	Refuse bool     // a job that lacks a field of the key is invalid; otherwise the limit is not about it

	Detailed bool // metrics have labels for values of the key
	Bounds
	Each map[string]Bounds // values of the key, exact or patterns, whose bounds are others; the fields stand between commas
}

// Bounds are the rules, the concurrency and the capacity of a limit by name: for all values of its key, or for some of them.
type Bounds struct {
	Limits
	Capacity  int  // waiting jobs; 0 for no bound
	Shared    bool // the rules count all that other queues and callers do, too
	Unlimited bool // the values have no bounds at all

	// Leased says that the concurrency limit counts jobs of several partitions, which lease its places. Only [File.Across] sets it.
	Leased bool

	// Counters is what the names of the counters of a shared limit begin with, beside those of others: "push/" of one that is shared by
	// the partitions of that queue alone. Only [File.Across] sets it.
	Counters string
}

// What a limit counts that is not a unit.
const (
	CountsJobs = "jobs"
	CountsCost = "cost"
)

// KeyField begins the name of a field that is one of a job's own keys.
const KeyField = "keys."

const (
	wantField   = "tenant, user, type, or keys.NAME for one of the job's own keys"
	wantCounts  = "jobs, cost, or the name of a unit of the job's own, such as tokens"
	wantMissing = "ignore or refuse"
	wantTruth   = "true or false"
	wantSlots   = "leaks, token_buckets, windows, warmups, spacings, and fixed_windows and sliding_counters that count by 100ms or longer"
	wantShared  = wantSlots + ", which neither drop nor have count_dropped"
	wantAcross  = wantSlots + "; those that count by periods without count_dropped"
	wantBounds  = "rules, concurrency or capacity; unlimited only for a value in each"
	wantSubject = "a key or jobs, which can be paused, or rules, concurrency or capacity"
	wantLimit   = "another name: everybody has the limits queue, tenant and user, which stand in queue and policies"
)

// maxFields is how many fields a key has at most.
const maxFields = 4

var unitName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)

// IsKeyName reports whether a job may have a key of that name.
func IsKeyName(name string) bool { return policyName.MatchString(name) }

// IsUnit reports whether a job may have a cost in that unit.
func IsUnit(name string) bool {
	return unitName.MatchString(name) && name != CountsJobs && name != CountsCost
}

func (l Limit) check(path string) *Problem {
	for i, field := range l.Key {
		own, isOwn := strings.CutPrefix(field, KeyField)
		known := slices.Contains([]string{"tenant", "user", "type"}, field) || isOwn && policyName.MatchString(own)
		switch at := fmt.Sprintf("%s.key[%d]", path, i); {
		case !known:
			return &Problem{Path: at, Value: field, Text: wantField}
		case slices.Contains(l.Key[:i], field):
			return &Problem{Path: at, Text: field + " stands twice in one key"}
		case i == maxFields:
			return &Problem{Path: at, Text: fmt.Sprintf("a key has %d fields at most", maxFields)}
		}
	}
	if slices.Contains(l.Key, "user") && !slices.Contains(l.Key, "tenant") {
		return &Problem{Path: path + ".key", Text: "user without tenant; want [tenant, user]: users of different tenants may have one name"}
	}
	for i, name := range l.Types {
		if name == "" {
			return &Problem{Path: fmt.Sprintf("%s.jobs.type[%d]", path, i), Text: "an empty type; want one such as marketing, or a pattern such as promo_*"}
		}
	}
	if l.Counts != "" && !unitName.MatchString(l.Counts) {
		return &Problem{Path: path + ".counts", Value: l.Counts, Text: wantCounts}
	}
	if l.Unlimited {
		return &Problem{Path: path, Text: "unlimited; want " + wantBounds}
	}
	if len(l.Key) == 0 && len(l.Types) == 0 && l.limitsNothing() {
		return &Problem{Path: path, Text: "limits nothing; want " + wantSubject}
	}
	if wrong := l.Bounds.check(path); wrong != nil {
		return wrong
	}
	ofUsers := slices.Contains(l.Key, "user")
	if wrong := notOfUsers(path, l.Rules); wrong != nil && !ofUsers {
		return wrong
	}
	if len(l.Key) == 0 && l.Detailed {
		return &Problem{Path: path + ".detailed", Text: "values of no key; want a key, such as key: [tenant]"}
	}
	if len(l.Key) == 0 && len(l.Each) > 0 {
		return &Problem{Path: path + ".each", Text: "values of no key; want a key, such as key: [tenant]"}
	}
	for _, value := range slices.Sorted(maps.Keys(l.Each)) {
		path, bounds := join(path+".each", value), l.Each[value]
		if !bounds.Unlimited && bounds.limitsNothing() {
			return &Problem{Path: path, Text: "limits nothing; want " + wantBounds}
		}
		if wrong := bounds.check(path); wrong != nil {
			return wrong
		}
		if wrong := notOfUsers(path, bounds.Rules); wrong != nil && !ofUsers {
			return wrong
		}
	}
	return nil
}

func (b Bounds) limitsNothing() bool {
	return len(b.Rules) == 0 && b.Concurrency == (Concurrency{}) && b.Capacity == 0
}

func (b Bounds) check(path string) *Problem {
	if wrong := checkCapacity(path, b.Capacity); wrong != nil {
		return wrong
	}
	if wrong := b.Limits.check(path); wrong != nil || !b.Shared {
		return wrong
	}
	return b.checkShared(path)
}

// checkShared checks what a shared limit says. Its rules are decided in Redis, for all who share them; what runs and what waits is
// counted by each queue.
func (b Bounds) checkShared(path string) *Problem {
	if len(b.Rules) == 0 || b.Concurrency != (Concurrency{}) || b.Capacity > 0 {
		return &Problem{Path: path, Text: "shared; want rules, and neither concurrency nor capacity, which each queue counts by itself: they can stand in another limit"}
	}
	for i, r := range b.Rules {
		if !shareable(r) {
			return &Problem{Path: fmt.Sprintf("%s.rules[%d]", path, i), Text: r.String() + " of a shared limit; want " + wantShared}
		}
	}
	return nil
}

// shareable reports whether a rule that defers holds where a job starts a little after its slot, whoever has decided about the others.
func shareable(r throttle.Rule) bool { return !r.Drops() && !r.CountsDropped() && shareableAcross(r) }

// shareableAcross reports whether a rule may count the jobs of all partitions of a queue: it may also drop, and count what is dropped. Callers
// outside would be dropped for slots that were handed out ahead, since a rule admits nothing before its newest slot.
func shareableAcross(r throttle.Rule) bool {
	if r.Zone() == rules.OfUser || r.CountsDropped() && byPeriods(r) {
		return false
	}
	switch r.Kind() {
	case throttle.KindLeak, throttle.KindTokenBucket, throttle.KindWindow, throttle.KindSpacing, throttle.KindCalendar, throttle.KindWarmup:
		return true
	case throttle.KindFixedWindow:
		return r.Period() >= shortestPart
	case throttle.KindSlidingCounter:
		return r.Buckets() == 2 && r.Period() >= shortestPart || r.Period()/time.Duration(r.Buckets()) >= shortestPart
	}
	return false
}

// byPeriods reports whether a rule counts by periods or buckets.
func byPeriods(r throttle.Rule) bool {
	return r.Unit() != "" || r.Kind() == throttle.KindFixedWindow || r.Kind() == throttle.KindSlidingCounter
}

// shortestPart is the shortest period, or bucket, of which the end can be left out without losing much: a job that starts a little after its
// slot must not start in the next one.
const shortestPart = 100 * time.Millisecond

func (r *policyReader) named(at place) (l Limit) {
	fields := r.fields(at, "jobs", "key", "counts", "rules", "concurrency", "capacity", "each", "missing", "detailed", "shared")
	l.Types = r.texts(r.fields(fields["jobs"], "type")["type"], "a type of jobs, or a list of them")
	l.Key = r.texts(fields["key"], wantField)
	if c := fields["counts"]; c.Node != nil {
		if l.Counts = r.text(c, wantCounts); l.Counts == CountsCost {
			l.Counts = ""
		}
	}
	if m := fields["missing"]; m.Node != nil {
		l.Refuse = read(r, m, missing, wantMissing)
	}
	if d := fields["detailed"]; d.Node != nil {
		l.Detailed = read(r, d, truth, wantTruth)
	}
	l.Bounds = r.bounds(fields)
	if s := fields["shared"]; s.Node != nil {
		l.Shared = read(r, s, truth, wantTruth)
	}
	for _, entry := range r.entries(fields["each"]) {
		if l.Each == nil {
			l.Each = make(map[string]Bounds)
		}
		if entry.Kind == yaml.ScalarNode && entry.Value == "unlimited" {
			l.Each[entry.name] = Bounds{Unlimited: true}
			continue
		}
		bounds := r.bounds(r.fields(entry.place, "rules", "concurrency", "capacity"))
		bounds.Shared = l.Shared
		l.Each[entry.name] = bounds
	}
	return l
}

func (r *policyReader) bounds(fields map[string]place) Bounds {
	return Bounds{Limits: r.limits(fields), Capacity: r.capacity(fields)}
}

// missing reports whether a job without a field that is needed is refused.
func missing(text string) (bool, error) {
	if text != "ignore" && text != "refuse" {
		return false, errForm
	}
	return text == "refuse", nil
}

// truth reads true or false.
func truth(text string) (bool, error) {
	if text != "true" && text != "false" {
		return false, errForm
	}
	return text == "true", nil
}

// texts reads a list of single values, or one.
func (r *policyReader) texts(at place, want string) (texts []string) {
	switch {
	case at.Node == nil || isNull(at.Node):
		return nil
	case at.Kind != yaml.SequenceNode:
		return []string{r.text(at, want)}
	}
	for i, node := range at.Content {
		path := fmt.Sprintf("%s[%d]", at.path, i)
		one := place{path, node.Line, resolve(node)}
		r.found[path] = one
		texts = append(texts, r.text(one, want))
	}
	return texts
}

// The form of limits by name, for writing.
type (
	limitEntry struct {
		Jobs        jobsEntry      `yaml:",omitempty"`
		Key         []string       `yaml:",omitempty,flow"`
		Counts      string         `yaml:",omitempty"`
		Missing     string         `yaml:",omitempty"`
		Detailed    bool           `yaml:",omitempty"`
		Shared      bool           `yaml:",omitempty"`
		Rules       []ruleEntry    `yaml:",omitempty,flow"`
		Concurrency any            `yaml:",omitempty"`
		Capacity    int            `yaml:",omitempty"`
		Each        map[string]any `yaml:",omitempty"`
	}
	jobsEntry struct {
		Type []string `yaml:",omitempty,flow"`
	}
	boundsEntry struct {
		Rules       []ruleEntry `yaml:",omitempty,flow"`
		Concurrency any         `yaml:",omitempty"`
		Capacity    int         `yaml:",omitempty"`
	}
)

func (l Limit) entry() limitEntry {
	e := limitEntry{
		Jobs: jobsEntry{l.Types}, Key: l.Key, Counts: l.Counts, Detailed: l.Detailed, Shared: l.Shared,
		Rules: ruleEntries(l.Rules), Concurrency: written(l.Concurrency), Capacity: l.Capacity,
	}
	if l.Refuse {
		e.Missing = "refuse"
	}
	if len(l.Each) > 0 {
		e.Each = make(map[string]any, len(l.Each))
	}
	for value, b := range l.Each {
		if e.Each[value] = any("unlimited"); !b.Unlimited {
			e.Each[value] = boundsEntry{ruleEntries(b.Rules), written(b.Concurrency), b.Capacity}
		}
	}
	return e
}
