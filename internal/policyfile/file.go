// Package policyfile reads, checks and writes policies.
//
// A [File] is what a policy file says. It comes from the YAML of a file ([Parse]) or from a
// program's own values, and goes to Redis as YAML again ([File.Source]). [File.Check] is the one
// place that knows what a value may be; what it finds has a path, and Parse adds the line.
package policyfile

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/internal/wallclock"
	"github.com/waterclock/waterclock/throttle"
)

// A File is what a policy file says. The zero value limits nothing.
type File struct {
	// Partitions is how many partitions the queue has. 0 leaves that as it is: one in a queue that is new.
	Partitions int

	Queue    Limits            // of everything together
	Default  string            // the policy of tenants that Tenants does not name
	Policies map[string]Policy // by name
	Tenants  map[string]string // tenant → name of its policy
	Limits   map[string]Limit  // by name

	Overrides []Override // of what Redis keeps; those that have ended may be among them
}

// Limits are the rules of a scope, and how much of it runs at once.
type Limits struct {
	Rules       []throttle.Rule
	Concurrency Concurrency
}

// A Concurrency is how many jobs run at once: a number, or a share of all places. The zero value is no
// limit.
type Concurrency struct{ Jobs, Percent int }

// A Policy is what limits a tenant and each of its users.
type Policy struct {
	Tenant, User Limits
	Capacity     int // waiting jobs of the tenant; 0 for no bound
	UserCapacity int // waiting jobs of each user; 0 for no bound
	DropOldest   bool
	Weight       int           // 0 counts as 1
	MaxWait      time.Duration // 0 for no bound
	Zone, Quiet  string        // of users who have said nothing else: their zone, and when they want nothing, such as 21:30-07:00
	ClosedCounts bool          // the time in which hours are closed counts for MaxWait
	Digest       Digest
}

// A Digest says when jobs with one digest key start together.
type Digest struct {
	Max        int           // of its members; 0 counts as 100
	Wait, Idle time.Duration // from its first, and from its last member; 0 for none

	// In place of them, when all of them start: a local time such as 08:00, of all days or of some, such as mon-fri. The zone is
	// UTC if it is "", or that of each user ("user").
	At, Days, Zone string
}

// The bounds of values.
const (
	MaxName        = 1024 // bytes of a tenant's name
	MaxConcurrency = 1_000_000
	MaxPercent     = 100
	maxWeight      = 100
	maxDigest      = 1000
	MaxPartitions  = 64
	maxDigestWait  = 366 * 24 * time.Hour
)

// What would be right, for the values of which that can be said without knowing them.
const (
	wantConcurrency = "1 to 1000000 jobs such as 20, or a share of all places from 1% to 100% such as 25%"
	wantCapacity    = "a number of jobs such as 100000, or 0 for no bound"
	wantOverflow    = "drop_newest or drop_oldest"
	wantWeight      = "a weight from 1 to 100"
	wantMaxWait     = "a time such as 15m, at least 1ms, or 0 for no bound"
	wantDigestMax   = "1 to 1000 members"
	wantPartitions  = "1 to 64 partitions"
	wantDigestWait  = "a time such as 30s, from 1ms to 366 days"
	wantName        = "1 to 64 letters, digits, dots, dashes or underscores"
)

var policyName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// A Problem is a value that is not allowed.
type Problem struct {
	Path  string // such as policies.standard.weight
	Value string // empty where Text says it
	Text  string // what would be right
	name  string // the key below Path that is wrong, if that is not the value
}

// String says where what is wrong, and what would be right.
func (p *Problem) String() string {
	if p.Value == "" {
		return p.Path + ": " + p.Text
	}
	return p.Path + ": " + p.Value + "; want " + p.Text
}

// Check returns the first problem of a file, nil if there is none.
func (f File) Check() *Problem {
	if f.Partitions < 0 || f.Partitions > MaxPartitions {
		return &Problem{Path: "partitions", Value: strconv.Itoa(f.Partitions), Text: wantPartitions}
	}
	if p := f.Queue.check("queue"); p != nil {
		return p
	}
	if p := notOfUsers("queue", f.Queue.Rules); p != nil {
		return p
	}
	for _, name := range slices.Sorted(maps.Keys(f.Policies)) {
		if !policyName.MatchString(name) {
			return &Problem{Path: "policies", Text: fmt.Sprintf("name %q; want %s", name, wantName), name: name}
		}
		if p := f.Policies[name].check(join("policies", name)); p != nil {
			return p
		}
	}
	if f.Default != "" {
		if p := f.knows("default", f.Default); p != nil {
			return p
		}
	}
	for _, tenant := range slices.Sorted(maps.Keys(f.Tenants)) {
		if tenant == "" || len(tenant) > MaxName {
			return &Problem{Path: "tenants", Text: fmt.Sprintf("a tenant's name has 1 to %d bytes, not %d", MaxName, len(tenant)), name: tenant}
		}
		if p := f.knows(join("tenants", tenant), f.Tenants[tenant]); p != nil {
			return p
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Limits)) {
		switch {
		case !policyName.MatchString(name):
			return &Problem{Path: "limits", Text: fmt.Sprintf("name %q; want %s", name, wantName), name: name}
		case slices.Contains([]string{"queue", "tenant", "user"}, name):
			return &Problem{Path: "limits", Text: fmt.Sprintf("name %q; want %s", name, wantLimit), name: name}
		}
		if p := f.Limits[name].check(join("limits", name)); p != nil {
			return p
		}
	}
	if p := f.checkOverrides(); p != nil {
		return p
	}
	return f.checkPartitions()
}

// Of returns the policy of a tenant.
func (f File) Of(tenant string) Policy {
	name, named := f.Tenants[tenant]
	if !named {
		name = f.Default
	}
	return f.Policies[name]
}

// knows checks the name of a policy that there must be.
func (f File) knows(path, name string) *Problem {
	if _, known := f.Policies[name]; known {
		return nil
	}
	have := "there is none in policies"
	if len(f.Policies) > 0 {
		have = "want " + alternatives(slices.Sorted(maps.Keys(f.Policies)))
	}
	return &Problem{Path: path, Text: fmt.Sprintf("there is no policy %q; %s", name, have)}
}

func (p Policy) check(path string) *Problem {
	if wrong := notOfUsers(path+".tenant", p.Tenant.Rules); wrong != nil {
		return wrong
	}
	if p.Zone != "" {
		if _, err := wallclock.Zone(p.Zone); err != nil {
			return &Problem{Path: path + ".user.zone", Text: err.Error()}
		}
	}
	if p.Quiet != "" {
		if _, err := wallclock.ParseHours(p.Quiet, "", ""); err != nil {
			return &Problem{Path: path + ".user.quiet", Text: err.Error()}
		}
	}
	if wrong := p.Tenant.check(path + ".tenant"); wrong != nil {
		return wrong
	}
	if wrong := p.User.check(path + ".user"); wrong != nil {
		return wrong
	}
	if wrong := checkCapacity(path+".tenant", p.Capacity); wrong != nil {
		return wrong
	}
	if wrong := checkCapacity(path+".user", p.UserCapacity); wrong != nil {
		return wrong
	}
	switch {
	case p.Weight < 0 || p.Weight > maxWeight:
		return &Problem{Path: path + ".weight", Value: strconv.Itoa(p.Weight), Text: wantWeight}
	case p.MaxWait < 0 || 0 < p.MaxWait && p.MaxWait < time.Millisecond:
		return &Problem{Path: path + ".max_wait", Value: p.MaxWait.String(), Text: wantMaxWait}
	}
	return p.Digest.check(path + ".digest")
}

func (d Digest) check(path string) *Problem {
	if d.Max < 0 || d.Max > maxDigest {
		return &Problem{Path: path + ".max", Value: strconv.Itoa(d.Max), Text: wantDigestMax}
	}
	for _, of := range []struct {
		name string
		time time.Duration
	}{{"wait", d.Wait}, {"idle", d.Idle}} {
		if of.time < 0 || 0 < of.time && of.time < time.Millisecond || of.time > maxDigestWait {
			return &Problem{Path: path + "." + of.name, Value: of.time.String(), Text: wantDigestWait}
		}
	}
	if d.At == "" {
		for _, of := range [][2]string{{"days", d.Days}, {"zone", d.Zone}} {
			if of[1] != "" {
				return &Problem{Path: path + "." + of[0], Text: "is for digests that start at a time; want at, such as 08:00, too"}
			}
		}
		return nil
	}
	if d.Wait > 0 || d.Idle > 0 {
		return &Problem{Path: path + ".at", Text: "want either at, or wait and idle"}
	}
	if _, err := wallclock.ParseBell(d.At, d.Days); err != nil {
		return &Problem{Path: path + ".at", Text: err.Error()}
	}
	if d.Zone != "" && d.Zone != rules.OfUser {
		if _, err := wallclock.Zone(d.Zone); err != nil {
			return &Problem{Path: path + ".zone", Text: err.Error()}
		}
	}
	return nil
}

func checkCapacity(path string, n int) *Problem {
	if n < 0 {
		return &Problem{Path: path + ".capacity", Value: strconv.Itoa(n), Text: wantCapacity}
	}
	return nil
}

func (l Limits) check(path string) *Problem {
	for i, r := range l.Rules {
		if err := r.Validate(); err != nil {
			return &Problem{Path: fmt.Sprintf("%s.rules[%d]", path, i), Text: err.Error()}
		}
	}
	if at, wrong := together(l.Rules); wrong != "" {
		return &Problem{Path: fmt.Sprintf("%s.rules[%d]", path, at), Text: wrong}
	}
	c := l.Concurrency
	both := c.Jobs != 0 && c.Percent != 0
	if both || c.Jobs < 0 || c.Jobs > MaxConcurrency || c.Percent < 0 || c.Percent > MaxPercent {
		value := fmt.Sprint(written(c))
		if both {
			value = fmt.Sprintf("%d jobs and %d%%", c.Jobs, c.Percent)
		}
		return &Problem{Path: path + ".concurrency", Value: value, Text: wantConcurrency}
	}
	return nil
}

// notOfUsers returns a problem if a rule goes by the clock of a user where none counts.
func notOfUsers(path string, all []throttle.Rule) *Problem {
	for i, r := range all {
		if r.Zone() == rules.OfUser {
			return &Problem{Path: fmt.Sprintf("%s.rules[%d]", path, i), Text: "goes by the clock of a user; want it among the rules of user, or in a limit with key: [tenant, user]"}
		}
	}
	return nil
}

// together returns what is wrong with rules beside each other, and of which of them.
func together(all []throttle.Rule) (at int, wrong string) {
	first := -1
	for i, r := range all {
		switch {
		case r.Kind() != throttle.KindHours:
		case first < 0:
			first = i
		case r.Drops() != all[first].Drops() || r.Shadows() != all[first].Shadows():
			return i, "hours beside each other are alternatives; want all of them with the same over and shadow"
		}
	}
	return 0, ""
}
