// Package forecast says when waiting jobs may start, for whoever asks: receipts, explanations, the
// condition of the queue.
//
// A [Forecast] has what Redis says at one instant: policies, pauses, what the rules remember, and
// what runs. It changes nothing, and is asked for the first instant at which the limits of a user
// let a job start ([Forecast.Earliest]), or for the turn of a job that has others before it
// ([Forecast.Turn]). A [Reader] reads it.
package forecast

import (
	"math/bits"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/internal/wallclock"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A Forecast is what says, at one instant, when jobs may start.
type Forecast struct {
	Now      int64
	Policies *schedule.Policies // nil for none
	pauses   map[string]int64
	states   map[string]string
	subjects map[string]*Subject
	shared   map[string]*Shared // what shared limits say, by scope; nil if they were not asked
	census   *Census            // nil where no concurrency limit counts
}

// A Subject is a scope as it was then.
type Subject struct {
	Rules  *rules.Set
	State  rules.State
	Known  bool    // its state can be read
	Paused int64   // until when
	Shared *Shared // what it says if it is a shared limit that was asked; nil if not
	says   []int64 // since when each rule allows a job, see soonest
}

// New returns the forecast of what a store has read. What runs may be nil.
func New(policies *schedule.Policies, v store.View, running *Census) *Forecast {
	return &Forecast{
		Now: v.Now, Policies: policies, pauses: v.Pauses, states: v.States, subjects: make(map[string]*Subject), census: running,
	}
}

// Subjects returns whoever limits a job of a lane: the queue, its tenant, its user, and the limits by name. See
// [schedule.Policies.Uses].
func (p *Forecast) Subjects(lane store.Lane, env *envelope.Envelope) (all []*Subject, uses []schedule.Use) {
	uses = p.Policies.Uses(lane, env)
	return p.Of(uses), uses
}

// Of returns the subjects that limits are about.
func (p *Forecast) Of(uses []schedule.Use) []*Subject {
	all := make([]*Subject, 0, len(uses))
	for _, limit := range uses {
		if p.subjects[limit.Scope] == nil {
			s := &Subject{Rules: limit.Rules, Paused: p.pauses[limit.Scope]}
			s.Known = s.State.Decode(p.states[limit.Scope]) == nil
			if limit.Shared != nil && p.shared != nil {
				s.Shared = p.shared[limit.Scope]
				s.Known = s.Shared != nil
			}
			if limit.OfUser && p.Policies.OfUsers() {
				s.State.Of(p.person(limit))
			}
			p.subjects[limit.Scope] = s
		}
		all = append(all, p.subjects[limit.Scope])
	}
	return all
}

// opens returns when a pause, and what others have spent of a shared limit, let something start.
func (s *Subject) opens() int64 {
	if s.Shared == nil {
		return s.Paused
	}
	return max(s.Paused, s.Shared.opens)
}

// person returns by whose clock a limit of a user goes.
func (p *Forecast) person(limit schedule.Use) *wallclock.Person {
	tenant, user := envelope.ParseScope(limit.Scope)
	if _, values, named := envelope.ParseLimitScope(limit.Scope); named {
		for i, field := range limit.Fields {
			switch field {
			case "tenant":
				tenant = values[i]
			case "user":
				user = values[i]
			}
		}
	}
	return p.Clock(store.Lane{Tenant: tenant, User: user})
}

// Clock returns the clock of the user of a lane.
func (p *Forecast) Clock(lane store.Lane) *wallclock.Person {
	person := wallclock.ReadPerson(p.states[envelope.PersonScope(lane.Tenant, lane.User)])
	if usual := p.Policies.Of(lane.Tenant).Person; usual != nil {
		person = person.Over(*usual)
	}
	return &person
}

// from returns the forecast as of a later instant, when an override has ended.
func (p *Forecast) from(at int64) *Forecast {
	return &Forecast{
		Now: at, Policies: p.Policies.At(at), pauses: p.pauses, states: p.states, subjects: make(map[string]*Subject), shared: p.shared, census: p.census,
	}
}

// Start returns when pauses and rules let a job of a lane start: those in force until their overrides end, and from then on
// those that follow. It is false where that is not known.
func (p *Forecast) Start(lane store.Lane, env *envelope.Envelope) (int64, bool) {
	at, known := p.Earliest(lane, env)
	if end := p.Policies.EndFor(p.Policies.Uses(lane, env)); known && at >= end {
		return p.from(end).Start(lane, env)
	}
	return at, known
}

// Earliest returns the first instant at which pauses and the rules in force let a job of a lane start; a job of nil is one of
// cost 1. It is false where that is not known.
func (p *Forecast) Earliest(lane store.Lane, env *envelope.Envelope) (int64, bool) {
	return p.EarliestFrom(p.Now, lane, env)
}

// EarliestFrom returns the first instant from one on, which may have passed: for how long a
// job could have started is counted from there.
func (p *Forecast) EarliestFrom(at int64, lane store.Lane, env *envelope.Envelope) (int64, bool) {
	return p.earliestUnder(at, p.Policies.Uses(lane, env))
}

// NextUnder returns the first instant at which a limit lets a job start, as far as its rules and its pause go; false where that
// is not known.
func (p *Forecast) NextUnder(limit schedule.Use) (int64, bool) {
	at, known := p.earliestUnder(p.Now, []schedule.Use{limit})
	if end := p.Policies.EndFor([]schedule.Use{limit}); known && at >= end {
		then := p.from(end)
		limit.Limit, _ = then.Policies.Limit(limit.Scope)
		return then.NextUnder(limit)
	}
	return at, known
}

func (p *Forecast) earliestUnder(at int64, uses []schedule.Use) (int64, bool) {
	subjects := p.Of(uses)
	all := make([]schedule.Remembered, len(subjects))
	for k, s := range subjects {
		if !s.Known {
			return 0, false
		}
		all[k] = schedule.Remembered{Rules: s.Rules, State: &s.State, Cost: max(1, uses[k].Cost)}
		at = max(at, s.opens())
	}
	return schedule.Earliest(all, at), true
}

// Turn says when the rules let a job of a lane start that has so many before it, in its tenant and
// of its user, if no job with an earlier turn is added. A subject whose state cannot be read counts
// as one without: so it does for the leader. Limit is the concurrency limit that may keep the job
// waiting for longer, see [Forecast.Crowded].
func (p *Forecast) Turn(lane store.Lane, env *envelope.Envelope, inTenant, ofUser int) (start int64, limit string) {
	return p.TurnUnder(p.Policies.Uses(lane, env), lane, env, inTenant, ofUser)
}

// TurnUnder is [Forecast.Turn] of a job whose limits are known already.
func (p *Forecast) TurnUnder(uses []schedule.Use, lane store.Lane, env *envelope.Envelope, inTenant, ofUser int) (start int64, limit string) {
	subjects := p.Of(uses)
	at, open := p.Now, max(p.Now, subjects[0].Paused, subjects[1].Paused)
	soonest := at // of a job that has nobody before it
	for k, s := range subjects {
		from := max(p.Now, s.opens())
		if k < 2 {
			from = open
		}
		if at = max(at, from); s.Known {
			at = max(at, s.after(from, int64(first(k, uses[k], inTenant, ofUser))))
			soonest = max(soonest, s.after(from, 0))
		}
	}
	if hours := p.hours(uses); len(hours) > 0 { // those before it start while they are open, too
		at = schedule.Lasting(hours, soonest, at-soonest)
	}
	if end := p.Policies.EndFor(uses); at >= end { // until then some of the jobs before it start, at an even pace
		started := float64(end-p.Now) / float64(at-p.Now)
		left := func(n int) int { return n - int(float64(n)*started) }
		return p.from(end).Turn(lane, env, left(inTenant), left(ofUser))
	}
	return at, p.Crowded(lane, env, inTenant, ofUser)
}

// Hours returns those limits of a job of a lane that have hours.
func (p *Forecast) Hours(lane store.Lane, env *envelope.Envelope) []schedule.Remembered {
	if !p.Policies.Closes() {
		return nil
	}
	return p.hours(p.Policies.Uses(lane, env))
}

func (p *Forecast) hours(uses []schedule.Use) (all []schedule.Remembered) {
	if !p.Policies.Closes() {
		return nil
	}
	for _, s := range p.Of(uses) {
		if s.Rules.Closes() {
			all = append(all, schedule.Remembered{Rules: s.Rules, State: &s.State})
		}
	}
	return all
}

// after guesses when the subject lets a job start that has k before it: what each rule
// says now, and its period for every Limit jobs.
func (s *Subject) after(from, k int64) int64 {
	if s.says == nil {
		s.says = s.soonest(from)
	}
	at := from
	for i, since := range s.says {
		rule := s.Rules.Rule(i)
		if rule.Drop || rule.Shadow {
			continue
		}
		then, depends := s.Rules.After(&s.State, i, since, k)
		if !depends || rule.Ramp > 0 && s.flows() {
			then = min(since+takes(rule, k), rules.Never)
		}
		at = max(at, then)
	}
	return at
}

// flows reports whether a shared limit is in use. How far its ramps have come is not known: they are taken for over.
func (s *Subject) flows() bool { return s.Shared != nil && s.Shared.opens > 0 }

// soonest returns when each rule allows a job of cost 1.
func (s *Subject) soonest(from int64) []int64 {
	says := make([]int64, s.Rules.Len())
	for i := range says {
		says[i] = s.Rules.When(&s.State, i, from, 1)
	}
	return says
}

// takes returns how long a rule takes for k jobs of cost 1, in microseconds.
func takes(rule rules.Rule, k int64) int64 {
	if rule.Kind == rules.Hours {
		return 0
	}
	period, n := uint64(rule.Period.Microseconds()), uint64(rule.Limit)
	if rule.Kind == rules.Window || rule.Kind == rules.Spacing {
		period += schedule.Grace // see there
	}
	if rule.Kind != rules.Leak { // n at once
		k -= k % int64(n)
	}
	high, low := bits.Mul64(uint64(k), period)
	if high >= n {
		return rules.Never
	}
	took, _ := bits.Div64(high, low, n)
	return int64(min(took, uint64(rules.Never)))
}
