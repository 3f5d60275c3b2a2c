package queue

import (
	"fmt"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/policyfile"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/throttle"
)

// Policies assign limits to a queue, its tenants and their users. They live in Redis: a change
// holds at once for the whole fleet and for the jobs that wait already. The zero value limits
// nothing.
type Policies struct {
	// Partitions is how many partitions the queue has, up to 64: see docs/scaling.md. It is fixed when the queue is used
	// first. 0 leaves it as it is: one in a new queue.
	Partitions int

	Queue []throttle.Rule // rules for everything together

	// Concurrency is how many jobs of the queue run at once.
	Concurrency Concurrency

	Default  string            // the policy of tenants that Tenants does not name
	Policies map[string]Policy // by name
	Tenants  map[string]string // tenant → name of its policy

	Limits map[string]Limit // limits by name
}

// A Limit is a limit by name: of some types of jobs, counted for the values of a key. A job is subject to all limits that
// are about it, up to 8, beside those of the queue, its tenant and its user; it starts when all of them let it, and then
// all of them count it. A limit with Key or Types and nothing else can only be paused, see [Pause]. docs/limits.md
// describes them.
type Limit struct {
	Types  []string // of jobs, exact or with * for any text; nil for all
	Key    []string // "tenant", "user", "type", or "keys.NAME" for Job.Keys; nil for one counter for all
	Counts string   // "jobs", "cost", or a unit of Job.Costs; "" is "cost"

	// Refuse makes a job invalid that lacks a field of the key, or the unit. Otherwise it is not subject to
	// the limit. In files it is missing: refuse.
	Refuse bool

	// Detailed lets metrics have labels for values of the key: those that Each names, and 100 others. In files it is detailed: true.
	Detailed bool

	// Shared lets the rules count what other queues and callers do, too: all whose policies have a shared limit of this name, and
	// whoever decides by it with package limits or over HTTP. They defer: leaks, token buckets, windows, spacings, and fixed windows
	// and sliding counters that count by 100 ms or longer.
	// In files it is shared: true.
	Shared bool

	Rules       []throttle.Rule
	Concurrency Concurrency // how many jobs run at once

	// Capacity is how many jobs wait that the limit counts for the values of its key. A new one beyond that is refused,
	// and the jobs that waited before there was a capacity do not count. 0 means no bound.
	Capacity int

	// Each has other Rules, Concurrency and Capacity for a value of the key, exact or with *; with several fields, their
	// values stand between commas. Of several that match, the exact one counts, then the one with the most characters beside
	// its *. Unlimited is a value's that the limit is not about; nothing else of a Limit in Each counts.
	Each      map[string]Limit
	Unlimited bool
}

// A Policy is the set of rules of a tenant and of each of its users. The zero value
// limits nothing.
type Policy struct {
	Tenant []throttle.Rule // for the tenant as a whole
	User   []throttle.Rule // for each of its users

	// TenantConcurrency and UserConcurrency are how many jobs of the tenant, and of each of
	// its users, run at once.
	TenantConcurrency, UserConcurrency Concurrency

	// Capacity is how many waiting jobs the tenant's backlog holds, and UserCapacity how many of them are of one
	// user: a new job of a user whose backlog is full is refused, whatever DropOldest says. Jobs that are scheduled, or
	// back off, do not count. When their time comes they join the backlog even if it is full,
	// since they were accepted. 0 means no bound.
	Capacity, UserCapacity int

	// Zone and Quiet are those of users who have said nothing else ([Job.Zone], [Inspector.SetUser]), for rules that go by the user's clock
	// ([throttle.UserHours]): a zone such as Europe/Paris, and hours in which nothing is wanted, such as 21:30-07:00. Without
	// them the zone is UTC, and no hours are quiet. In files they stand in user.
	Zone, Quiet string

	// DropOldest makes a full backlog drop the job that has waited longest. Otherwise it refuses
	// the new one. In files it is overflow: drop_oldest.
	DropOldest bool

	// Weight is the tenant's share where places, or the queue's rules, are short: a tenant of
	// weight 4 gets four starts for one of a tenant of weight 1, if it asks for so many. From
	// 1 to 100; 0 counts as 1.
	Weight int

	// Digest says when a digest is full, and when it is due.
	Digest Digest

	// MaxWait is how long jobs without a StartBy may wait after their offer, or after their
	// NotBefore; then they are dropped. 0 means no bound. The time in which hours of their limits are closed does not
	// count, unless ClosedCounts says so.
	MaxWait      time.Duration
	ClosedCounts bool // in files it is closed_counts: true
}

// A Digest says when the jobs of a user with one Job.DigestKey start together. The zero value lets up to 100 of them start
// when the first has its slot.
type Digest struct {
	// Max is how many members a full digest has, from 1 to 1000: it waits no longer, and the next job begins another one. 0
	// counts as 100.
	Max int

	// Wait is how long a digest waits for more members, from its first one. Idle is how long it waits after each of them, up
	// to Wait; without a Wait that is as long as they keep coming. When both are over it comes in line.
	Wait, Idle time.Duration

	// At is when all digests start, in place of Wait and Idle: a local time such as 08:00. Days are those on which they do,
	// such as mon-fri, or mon for once a week; "" means all. Zone is by whose clock: a zone such as Europe/Paris, or "user" for
	// that of each user (Job.Zone, Inspector.SetUser, and Policy.Zone for the others); "" means UTC. A digest begins with its
	// first member, and starts at the next such time.
	At, Days, Zone string
}

// ParsePolicies reads a policy file. It is strict: whatever it does not know is an
// error. The name is the file's, for errors, which all wrap [ErrInvalidPolicies] and say
// where, what is wrong and what would be right:
//
//	policies.yaml:7: policies.standard.user.rule: unknown key; want rules, concurrency or capacity
//
// A file has six parts, each of which may be missing:
//
//	partitions: 16                # of the queue, fixed when it is used first: see docs/scaling.md
//	queue:                        # everything together
//	  rules: [{leak: 5000/s}]
//	  concurrency: 2000           # at once
//	default: standard             # the policy of tenants that are not named below
//	policies:
//	  standard:
//	    tenant:
//	      rules: [{leak: 50/s}]
//	      concurrency: 25%        # of the places of all workers
//	      capacity: 100000
//	      overflow: drop_newest
//	    user:
//	      concurrency: 1
//	      capacity: 1000          # of each user
//	      rules:
//	        - {window: 10/1m}
//	        - {spacing: 3s}
//	    max_wait: 15m             # the latest start of jobs without one
//	    digest: {max: 100, wait: 30s, idle: 5s} # of jobs with a digest key
//	  premium: {tenant: {rules: [{leak: 500/s}]}, weight: 4} # of its share where places are short
//	tenants: {school-1: premium}
//	limits:                       # by name: see docs/limits.md
//	  marketing: {jobs: {type: [marketing, promo_*]}, key: [tenant, user], rules: [{window: 5/24h, over: drop}]}
//
// A rule is one kind with its rate, and options:
//
//	{leak: 50/s}
//	{token_bucket: 10/1m, burst: 20}
//	{window: 50/24h, over: drop}
//	{spacing: 3s}
//	{fixed_window: 100/1h, shadow: true}
//	{sliding_counter: 1000/1h, buckets: 2, count_dropped: true}
//	{window: 3/day, zone: Europe/Paris}
//	{hours: 08:00-21:00, days: mon-fri, zone: Europe/Paris, holidays: [12-25, 2026-04-06]}
//	{warmup: {from: 2026-12-01, days: {1: 50/24h, 2: 100/24h, 7: 1000/24h}}}
//
// A tenant whose name is not UTF-8 is written as YAML's !!binary, in base64.
func ParsePolicies(name string, data []byte) (Policies, error) {
	f, err := policyfile.Parse(name, data)
	return policiesOf(f), err
}

// Validate returns an error wrapping [ErrInvalidPolicies] that says where what is wrong
// and what would be right, or nil.
func (p Policies) Validate() error {
	if wrong := p.file().Check(); wrong != nil {
		return fmt.Errorf("%w: %s", ErrInvalidPolicies, wrong)
	}
	return nil
}

// MarshalYAML returns the policies in the form that [ParsePolicies] reads.
func (p Policies) MarshalYAML() (any, error) { return p.file().MarshalYAML() }

// file returns the policies as a file has them.
func (p Policies) file() policyfile.File {
	f := policyfile.File{
		Partitions: p.Partitions, Queue: limitsOf(p.Queue, p.Concurrency), Default: p.Default, Policies: make(map[string]policyfile.Policy, len(p.Policies)), Tenants: p.Tenants,
	}
	for name, from := range p.Policies {
		f.Policies[name] = policyfile.Policy{
			Tenant: limitsOf(from.Tenant, from.TenantConcurrency), User: limitsOf(from.User, from.UserConcurrency),
			Capacity: from.Capacity, UserCapacity: from.UserCapacity, DropOldest: from.DropOldest, Weight: from.Weight, MaxWait: from.MaxWait, ClosedCounts: from.ClosedCounts, Zone: from.Zone, Quiet: from.Quiet,
			Digest: policyfile.Digest(from.Digest),
		}
	}
	if p.Limits != nil {
		f.Limits = make(map[string]policyfile.Limit, len(p.Limits))
	}
	for name, from := range p.Limits {
		l := policyfile.Limit{
			Types: from.Types, Key: from.Key, Counts: from.Counts, Refuse: from.Refuse, Detailed: from.Detailed,
			Bounds: policyfile.Bounds{Limits: limitsOf(from.Rules, from.Concurrency), Capacity: from.Capacity, Shared: from.Shared},
		}
		if l.Counts == policyfile.CountsCost {
			l.Counts = ""
		}
		for value, of := range from.Each {
			if l.Each == nil {
				l.Each = make(map[string]policyfile.Bounds, len(from.Each))
			}
			l.Each[value] = policyfile.Bounds{Limits: limitsOf(of.Rules, of.Concurrency), Capacity: of.Capacity, Shared: from.Shared && !of.Unlimited, Unlimited: of.Unlimited}
		}
		f.Limits[name] = l
	}
	return f
}

func limitsOf(rules []throttle.Rule, c Concurrency) policyfile.Limits {
	return policyfile.Limits{Rules: rules, Concurrency: policyfile.Concurrency(c)}
}

// policiesOf returns what a file says; nothing of a file that could not be read.
func policiesOf(f policyfile.File) Policies {
	p := Policies{Partitions: f.Partitions, Queue: f.Queue.Rules, Concurrency: Concurrency(f.Queue.Concurrency), Default: f.Default, Tenants: f.Tenants}
	if f.Policies != nil {
		p.Policies = make(map[string]Policy, len(f.Policies))
	}
	for name, from := range f.Policies {
		p.Policies[name] = Policy{
			Tenant: from.Tenant.Rules, User: from.User.Rules,
			TenantConcurrency: Concurrency(from.Tenant.Concurrency), UserConcurrency: Concurrency(from.User.Concurrency),
			Capacity: from.Capacity, UserCapacity: from.UserCapacity, DropOldest: from.DropOldest, Weight: from.Weight, MaxWait: from.MaxWait, ClosedCounts: from.ClosedCounts, Zone: from.Zone, Quiet: from.Quiet,
			Digest: Digest(from.Digest),
		}
	}
	if f.Limits != nil {
		p.Limits = make(map[string]Limit, len(f.Limits))
	}
	for name, from := range f.Limits {
		l := Limit{
			Types: from.Types, Key: from.Key, Counts: from.Counts, Refuse: from.Refuse, Detailed: from.Detailed, Shared: from.Shared,
			Rules: from.Rules, Concurrency: Concurrency(from.Concurrency), Capacity: from.Capacity,
		}
		for value, of := range from.Each {
			if l.Each == nil {
				l.Each = make(map[string]Limit, len(from.Each))
			}
			l.Each[value] = Limit{Rules: of.Rules, Concurrency: Concurrency(of.Concurrency), Capacity: of.Capacity, Unlimited: of.Unlimited}
		}
		p.Limits[name] = l
	}
	return p
}

// A Concurrency is how many jobs run at once: a number, or a share of the places of all
// workers that live, at least 1. The zero value is no limit.
//
// A job counts from its claim, which is up to 20 ms before its start, until its end has
// reached Redis. The jobs of a worker that has died count until its lease has expired. Of what
// a limit blocks only the earliest start is known: it starts when another job has ended.
type Concurrency struct {
	Jobs    int // a number of jobs, from 1 to 1,000,000
	Percent int // or a share of all places, from 1 to 100
}

// String returns the limit as policy files have it: "20", "25%", or "" for none.
func (c Concurrency) String() string {
	if c == (Concurrency{}) {
		return ""
	}
	return strings.TrimPrefix(schedule.Concurrency(c).String(), "concurrency ")
}

// MarshalText returns the limit as [Concurrency.String] does.
func (c Concurrency) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads what policy files have: 20, or 25%. The error wraps [ErrInvalidPolicies].
func (c *Concurrency) UnmarshalText(text []byte) error {
	parsed, err := policyfile.ParseConcurrency(string(text))
	if err != nil {
		return fmt.Errorf("%w: concurrency %w", ErrInvalidPolicies, err)
	}
	*c = Concurrency(parsed)
	return nil
}
