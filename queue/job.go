package queue

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/waterclock/waterclock/internal/policyfile"
	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// A Job is one unit of work for one user of one tenant. Tenant, User and Type are
// required, arbitrary bytes; the zero value of everything else is its default.
type Job struct {
	// ID makes offers idempotent: a second job of the queue with the ID is a duplicate, whichever
	// its tenant. It is known for a day after the offer, or after NotBefore; until then the job
	// can be cancelled and explained by its ID. Defaults to a name made of the instant of the
	// offer, which no other job of the queue has; by such an ID a job can neither be cancelled
	// nor explained.
	ID string

	Tenant string // whose leak rate it is
	User   string // whose window and spacing count

	Type    string            // selects the handler, as in asynq
	Payload []byte            // for the handler
	Headers map[string]string // for the handler, as in asynq

	// Cost is how much of each of its rules the job spends, from 1 to 1,000,000. Defaults to 1.
	Cost int

	// Keys are fields for whose values limits by name count: a limit with "key: keys.domain" counts for
	// Keys["domain"]. At most 16, of names with 1 to 64 letters, digits, dots, dashes or underscores, and values
	// of 1 to 256 bytes.
	Keys map[string]string

	// Costs is what the job costs in units of its own: a limit with "counts: tokens" counts Costs["tokens"]. At most 16
	// units. The name of a unit is a lower-case letter and up to 31 lower-case letters, digits or underscores; its number is
	// from 0 to 1,000,000,000.
	Costs map[string]int

	// NotBefore is the earliest start. The zero time means now.
	NotBefore time.Time

	// StartBy is the latest start: a job whose slot would be later is dropped. Defaults to the
	// policy's MaxWait after the offer, or after NotBefore if that is set; without a MaxWait
	// there is no latest start.
	StartBy time.Time

	// FinishBy is when the context of its handler ends, whenever the handler starts. The zero
	// time means never. With Timeout too, the earlier of the two ends it.
	FinishBy time.Time

	// Priority orders the jobs of one tenant. Defaults to Normal.
	Priority Priority

	// CollapseKey makes the job take the place in line of the user's waiting job with the same
	// key, if there is one. That job is dropped.
	CollapseKey string

	// DigestKey lets the job start together with others: the user's waiting jobs with the same key, of one priority and
	// subject to the same limits by name, are members of one digest, up to the policy's [Digest].Max. It has one place in
	// line and one start in every rule, at the cost of its most costly member. Its handler runs once, with the newest job's
	// payload; Info.Digest has all members. They end together, and are accounted for one by one. A CollapseKey replaces
	// within the digest. A job with a NotBefore cannot have one.
	DigestKey string

	// MaxAttempts is how many times the job is attempted at most. 0 means 26, 1 means
	// once.
	MaxAttempts int

	// Timeout bounds one attempt: the handler's context ends then. 0 means no bound.
	Timeout time.Duration

	// Zone and Quiet tell of the user's clock, for rules that go by it ([throttle.UserHours]): a zone such as "Europe/Paris", and hours in
	// which the user wants nothing, such as "21:30-07:00". Both are known from the offer on, for all jobs of the user, until others come.
	Zone, Quiet string

	// Callback is who is told how the job has ended. The zero value tells nobody.
	Callback Callback
}

// Priority orders the jobs of one tenant among each other: high ones first, low ones
// when there is nothing else. It never lifts a limit. A higher priority is a higher
// number.
type Priority int

const (
	Low    Priority = -1 // when the tenant has nothing else to start
	Normal Priority = 0
	High   Priority = 1 // before the tenant's other jobs
)

// String returns "low", "normal" or "high".
func (p Priority) String() string {
	switch p {
	case Low:
		return "low"
	case Normal:
		return "normal"
	case High:
		return "high"
	}
	return fmt.Sprintf("priority %d", int(p))
}

// Status says what became of an offered job.
type Status string

const (
	Accepted  Status = "accepted"  // it waits in its lane
	Replaced  Status = "replaced"  // it took the place of a job with its collapse key
	Duplicate Status = "duplicate" // a job with its ID was offered before
	Dropped   Status = "dropped"   // it was dropped at once, see Reason
)

// Reason says why a job was dropped.
type Reason string

const (
	ReasonFull       Reason = "full"       // the backlog of the tenant, or that which Rule names, was at its capacity
	ReasonRule       Reason = "rule"       // a rule with over: drop refused it
	ReasonExpired    Reason = "expired"    // its slot lay beyond its latest start, see Job.StartBy
	ReasonCollapsed  Reason = "collapsed"  // a newer job took its place
	ReasonImpossible Reason = "impossible" // it costs more than a rule ever admits
	ReasonCancelled  Reason = "cancelled"  // see Inspector.Cancel
	ReasonPurged     Reason = "purged"     // see Inspector.Purge
	ReasonDuplicate  Reason = "duplicate"  // an asynq task whose ID a living job has
	ReasonBroken     Reason = "broken"     // a key of its tenant in Redis holds something else
)

// An Estimate says when a waiting job may start. All times are on Redis's clock.
type Estimate struct {
	// Start is when rules and pauses let the job start, if no job with an earlier turn is added.
	Start time.Time `json:"start,omitzero"`

	// AtEarliest says that a concurrency limit may keep the job waiting beyond Start: for how long
	// depends on when other jobs end, which is unknown.
	AtEarliest bool `json:"at_earliest,omitempty"`

	// Limit is that concurrency limit and what runs, for people: "tenant concurrency 20: 20
	// running, the oldest for 31s", or "user concurrency 1: 0 running, 3 jobs come first".
	Limit string `json:"limit,omitempty"`

	// StartBy is the job's latest start: later it is dropped. It is the zero time without one.
	StartBy time.Time `json:"start_by,omitzero"`
}

// A Receipt tells a producer what became of an offered job.
type Receipt struct {
	ID     string `json:"id"`     // the job's own, or that which the queue has given it
	Status Status `json:"status"` // what became of it

	// Place is the job's place in its lane; 1 is next. 0 if it is not in line.
	Place int `json:"place,omitempty"`

	// Digest is the digest that the job has joined or begun: the receipts of all its members have the same. Empty for a job
	// without a DigestKey.
	Digest string `json:"digest,omitempty"`

	Estimate // of an accepted job

	Reason Reason `json:"reason,omitempty"` // why it was dropped

	// Rule is which rule, for ReasonImpossible. For ReasonFull it is whose capacity, such as "capacity of user ann"; empty for
	// the tenant's.
	Rule string `json:"rule,omitempty"`
}

// The bounds of a job. They keep every sum of instants, costs and attempts far from
// overflowing.
const (
	maxName     = 1024 // bytes in a tenant, user, type, ID or collapse key
	maxKeys     = 16   // keys, or units
	maxKey      = 256  // bytes in the value of a key
	maxUnits    = 1_000_000_000
	maxCost     = 1_000_000
	maxAttempts = 1_000_000_000
	maxPayload  = 1 << 20  // bytes
	maxHeaders  = 64 << 10 // bytes in all names and values
	maxTimeout  = 366 * 24 * time.Hour
	lastYear    = 2200
)

// Validate returns an error wrapping [ErrInvalidJob] that says what is wrong with the
// job and what would be right, or nil.
func (j Job) Validate() error {
	names := []struct {
		field, value string
		required     bool
	}{
		{"tenant", j.Tenant, true}, {"user", j.User, true}, {"type", j.Type, true},
		{"id", j.ID, false}, {"collapse_key", j.CollapseKey, false}, {"digest_key", j.DigestKey, false},
	}
	for _, n := range names {
		if n.required && n.value == "" {
			return fmt.Errorf("%w: %s is missing", ErrInvalidJob, n.field)
		}
		if len(n.value) > maxName {
			return fmt.Errorf("%w: %s has %d bytes; at most %d", ErrInvalidJob, n.field, len(n.value), maxName)
		}
	}
	if j.Zone != "" || j.Quiet != "" {
		if _, err := (UserClock{j.Zone, j.Quiet}).validate(); err != nil {
			return err
		}
	}
	switch {
	case j.Cost < 0 || j.Cost > maxCost:
		return fmt.Errorf("%w: cost %d; from 1 to %d, or 0 for 1", ErrInvalidJob, j.Cost, maxCost)
	case j.Priority < Low || j.Priority > High:
		return fmt.Errorf("%w: %v; Low, Normal or High", ErrInvalidJob, j.Priority)
	case j.MaxAttempts < 0 || j.MaxAttempts > maxAttempts:
		return fmt.Errorf("%w: max attempts %d; from 1 to %d, or 0 for %d", ErrInvalidJob, j.MaxAttempts, maxAttempts, envelope.DefaultAttempts)
	case j.Timeout < 0:
		return fmt.Errorf("%w: timeout %v is negative", ErrInvalidJob, j.Timeout)
	case j.Timeout > maxTimeout:
		return fmt.Errorf("%w: timeout %v; at most %v", ErrInvalidJob, j.Timeout, maxTimeout)
	case j.DigestKey != "" && !j.NotBefore.IsZero():
		return fmt.Errorf("%w: digest_key and not_before; one of the two: a digest has an instant of its own, in the policy", ErrInvalidJob)
	case len(j.Payload) > maxPayload:
		return fmt.Errorf("%w: payload has %d bytes; at most %d", ErrInvalidJob, len(j.Payload), maxPayload)
	}
	return errors.Join(j.validateTimes(), j.validateHeaders(), j.validateKeys(), j.validateCosts(), j.Callback.validate())
}

func (j Job) validateKeys() error {
	if len(j.Keys) == 0 {
		return nil
	}
	if len(j.Keys) > maxKeys {
		return fmt.Errorf("%w: keys: %d of them; at most %d", ErrInvalidJob, len(j.Keys), maxKeys)
	}
	for _, name := range slices.Sorted(maps.Keys(j.Keys)) {
		if !policyfile.IsKeyName(name) {
			return fmt.Errorf("%w: keys: name %q; 1 to 64 letters, digits, dots, dashes or underscores", ErrInvalidJob, name)
		}
		if n := len(j.Keys[name]); n == 0 || n > maxKey {
			return fmt.Errorf("%w: keys.%s has %d bytes; from 1 to %d", ErrInvalidJob, name, n, maxKey)
		}
	}
	return nil
}

func (j Job) validateCosts() error {
	if len(j.Costs) == 0 {
		return nil
	}
	if len(j.Costs) > maxKeys {
		return fmt.Errorf("%w: costs: %d of them; at most %d", ErrInvalidJob, len(j.Costs), maxKeys)
	}
	for _, unit := range slices.Sorted(maps.Keys(j.Costs)) {
		if !policyfile.IsUnit(unit) {
			return fmt.Errorf("%w: costs: unit %q; want a name such as tokens: a lower-case letter, then up to 31 of them, digits or underscores", ErrInvalidJob, unit)
		}
		if n := j.Costs[unit]; n < 0 || n > maxUnits {
			return fmt.Errorf("%w: costs.%s is %d; from 0 to %d", ErrInvalidJob, unit, n, maxUnits)
		}
	}
	return nil
}

func (j Job) validateTimes() error {
	if j.NotBefore.UTC().Year() > lastYear {
		return fmt.Errorf("%w: not_before is in the year %d; at most %d", ErrInvalidJob, j.NotBefore.UTC().Year(), lastYear)
	}
	for _, limit := range []struct {
		field string
		at    time.Time
	}{{"deadline", j.StartBy}, {"finish_by", j.FinishBy}} {
		if year := limit.at.UTC().Year(); !limit.at.IsZero() && (year < 1970 || year > lastYear || limit.at.UnixMicro() <= 0) {
			return fmt.Errorf("%w: %s is in the year %d; a time after 1970, up to %d", ErrInvalidJob, limit.field, year, lastYear)
		}
	}
	return nil
}

func (j Job) validateHeaders() error {
	size := 0
	for name, value := range j.Headers {
		size += len(name) + len(value)
	}
	if size > maxHeaders {
		return fmt.Errorf("%w: headers have %d bytes; at most %d", ErrInvalidJob, size, maxHeaders)
	}
	return nil
}
