package schedule

import (
	"time"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/internal/wallclock"
	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// Policies say what limits whom, compiled. They are immutable: other policies are another value, by whose address the
// scheduler knows that they have changed.
type Policies struct {
	Version          int64
	Partitions       int // of the queue, from 1
	Queue            *rules.Set
	QueueConcurrency Concurrency
	Default          string            // name of the policy of tenants that Tenants does not name
	Policies         map[string]Policy // by name
	Tenants          map[string]string // tenant → name of its policy
	Named            Named             // limits by name; nil for none
	Hours            bool              // some of the rules are hours
	Personal         bool              // some of them go by users' own clocks
	Zoned            bool              // some of them go by a local time other than UTC

	// Overrides are a part of all this until they end. These policies hold until Ends, when the next of them does;
	// the last of those that have ended by now ended at Ended. Both are 0 for never.
	Ends, Ended int64
	Overrides   map[string]Override       // by the scope of whom they name
	At          func(now int64) *Policies // the same policies as they hold later; nil if no override ends
}

// An Override is a part of policies until it ends.
type Override struct {
	Until                        int64
	Author, Reason               string
	Rules, Concurrency, Capacity bool // what it replaces
}

// HoldAt reports whether the policies hold at an instant: no override that they have has ended by then. It works on nil.
func (p *Policies) HoldAt(now int64) bool { return now < p.End() }

// End returns until when the policies hold; Never if no override ends. It works on nil.
func (p *Policies) End() int64 {
	if p == nil || p.Ends == 0 {
		return Never
	}
	return p.Ends
}

// EndFor returns when the first override ends of those that govern one of some limits; Never if there is none. It works on nil.
func (p *Policies) EndFor(uses []Use) int64 {
	end := int64(Never)
	if p == nil || len(p.Overrides) == 0 {
		return end
	}
	for _, use := range uses {
		if o, is := p.Overrides[use.Scope]; is {
			end = min(end, o.Until)
		}
	}
	return end
}

// Override returns the override that governs a scope; false if there is none. It works on nil.
func (p *Policies) Override(scope string) (o Override, is bool) {
	if p != nil {
		o, is = p.Overrides[scope]
	}
	return o, is
}

// Since tells policies of one version with different overrides apart: it is that version, or when the last override has
// ended. Bounds that were computed before may be too late.
func (p *Policies) Since() int64 { return max(p.Version, p.Ended) }

// Named are the limits by name of policies.
type Named interface {
	// Job adds those that a job of a user is subject to, and returns the label of the lane in which it waits. The error says
	// why the job is invalid: it lacks what a limit needs, or too many limits are about it.
	Job(uses []Use, lane envelope.Lane, env *envelope.Envelope) (all []Use, label string, invalid error)
	// Lane returns those that the jobs of a lane are subject to, as its label says, without what they cost.
	Lane(lane envelope.Lane) []Use
	// Scope returns the limit of a scope; false if there is none.
	Scope(scope string) (Limit, bool)
	// Counts reports whether one of them limits how much runs at once.
	Counts() bool
}

// A Use is a limit by name that a job is subject to.
type Use struct {
	Limit
	Name   string   // of the limit
	Fields []string // of its key
	Cost   int      // what the job costs of it. Where only the lane is known: 0 is the cost of the job, and -1 unknown
	OfUser bool     // it counts for each user

	each []int // of several shared limits that are asked together, what the job costs each of them
}

// A Policy is what limits a tenant and each of its users. The zero value limits nothing.
type Policy struct {
	Name                               string
	Tenant, User                       *rules.Set
	TenantConcurrency, UserConcurrency Concurrency
	Capacity                           int   // of the backlog; 0 for no bound
	UserCapacity                       int   // of each user's backlog; 0 for no bound
	DropOldest                         bool  // a full backlog drops its oldest job rather than a new one
	Weight                             int   // of its share under overload; 0 counts as 1
	MaxWait                            int64 // µs from when a job may start until it is too late; 0 for no bound
	ClosedCounts                       bool  // also those in which hours are closed

	Person *wallclock.Person // whose clock and quiet hours a user has who has said nothing else; nil for UTC, and none

	Digest Digest

	Users map[string]UserLimit // whose limits are not User, UserConcurrency and UserCapacity
}

// A Digest says when a digest is full, and when it is due. Times are in µs.
type Digest struct {
	Max        int // 0 counts as DigestMax
	Wait, Idle int64
	At         *wallclock.Bell // when all digests start, in place of them; nil for that
	Zone       *time.Location  // by which the bell rings; nil for that of each user
}

// Due returns when a digest that begins at an instant is due, where that is a local time: for a user with that clock.
func (d Digest) Due(person *wallclock.Person, begin int64) int64 {
	zone := d.Zone
	if zone == nil {
		zone = person.Zone()
	}
	return d.At.Next(zone, begin)
}

// DigestMax is how many members a full digest has, if its policy does not say it.
const DigestMax = 100

// A UserLimit is what limits one user.
type UserLimit struct {
	Rules       *rules.Set
	Concurrency Concurrency
	Capacity    int // waiting jobs; 0 for no bound
}

// OfUser returns what limits a user.
func (p Policy) OfUser(name string) UserLimit {
	if own, has := p.Users[name]; has {
		return own
	}
	return UserLimit{p.User, p.UserConcurrency, p.UserCapacity}
}

// counts reports whether the policy limits how much runs at once.
func (p Policy) counts() bool {
	if p.TenantConcurrency.Limits() || p.UserConcurrency.Limits() {
		return true
	}
	for _, user := range p.Users {
		if user.Concurrency.Limits() {
			return true
		}
	}
	return false
}

// Of returns the policy of a tenant. It works on nil, which limits nothing.
func (p *Policies) Of(tenant string) Policy {
	if p == nil {
		return Policy{}
	}
	name, named := p.Tenants[tenant]
	if !named {
		name = p.Default
	}
	return p.Policies[name]
}

// Counts reports whether the policies limit how much runs at once. It works on nil.
func (p *Policies) Counts() bool {
	if p == nil {
		return false
	}
	if p.QueueConcurrency.Limits() || p.Named != nil && p.Named.Counts() {
		return true
	}
	for _, policy := range p.Policies {
		if policy.counts() {
			return true
		}
	}
	return false
}

// Deadline returns the latest start of a job, 0 for none: its own, or so long after the
// instant from which it may start as its policy says. That time does not pass while hours of the job's limits are closed,
// unless the policy says so.
func (p Policy) Deadline(own, since int64, hours []Remembered) int64 {
	switch {
	case own != 0 || p.MaxWait == 0:
		return own
	case len(hours) == 0 || p.ClosedCounts:
		return since + p.MaxWait
	}
	return Lasting(hours, since, p.MaxWait)
}

// Latest returns the latest start of a job, 0 for none: of a digest that of the member that may start last, of those that were
// not cancelled.
func (p Policy) Latest(env *envelope.Envelope, cancelled map[string]bool, hours []Remembered) (latest int64) {
	for _, part := range env.Parts() {
		if part != env && cancelled[part.ID] {
			continue
		}
		own := p.LatestOf(env, part, hours)
		if own == 0 {
			return 0
		}
		latest = max(latest, own)
	}
	return latest
}

// LatestOf returns the latest start of a member of a digest, 0 for none. Its longest wait counts from when the digest was due.
func (p Policy) LatestOf(digest, member *envelope.Envelope, hours []Remembered) int64 {
	return p.Deadline(member.Deadline, max(member.Begin(), digest.NotBefore, digest.Revived), hours)
}
