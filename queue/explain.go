package queue

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/forecast"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// An Explanation says why the jobs of a user wait. All times are on Redis's clock.
type Explanation struct {
	Now           time.Time `json:"now"`
	Workers       int       `json:"workers"`        // how many of the queue live: while none does nothing starts, whatever the rules say
	Policy        string    `json:"policy"`         // the tenant's policy; empty if it has none
	TenantWaiting int64     `json:"tenant_waiting"` // jobs in the tenant's lanes
	Waiting       int64     `json:"waiting"`        // of these, in the user's lanes

	// Estimate is that of the user's next job, all zero if none waits. Other users of the tenant
	// whose turn comes first may delay the job further.
	Estimate

	// Binding is what the next job waits for: a concurrency limit that is reached, or the
	// rule or the pause that lets it start last. nil if it may start now, or if none waits.
	Binding *RuleState `json:"binding,omitempty"`

	// Rules are all rules that limit the user. Pauses are among them as rules named "paused", and
	// concurrency limits as rules named "concurrency 20" or "concurrency 25%".
	Rules []RuleState `json:"rules"`
}

// RuleState is what one rule says about a user's next job.
type RuleState struct {
	Scope     Scope     `json:"scope"`            // whose rule it is
	Name      string    `json:"name,omitempty"`   // of the limit, for ScopeLimit
	Key       string    `json:"key,omitempty"`    // and the values of its key for which that counts, as in Pause
	Rule      string    `json:"rule"`             // as in the policy, "window 10/1m"; of a warm-up "window 100/24h (warm-up, day 2 of 7)"
	Zone      string    `json:"zone,omitempty"`   // by whose clock it goes: of hours, of warm-ups, and of windows by the calendar
	When      time.Time `json:"when,omitzero"`    // the earliest start that it allows; the zero time if that is unknown
	Limit     int       `json:"limit"`            // the most it lets start at once
	Remaining int       `json:"remaining"`        // how many more it would let start now
	Drops     bool      `json:"drops,omitempty"`  // it drops rather than defers
	Shadow    bool      `json:"shadow,omitempty"` // it is evaluated, and no job waits for it

	Running int       `json:"running,omitempty"` // of a concurrency limit: how many jobs run
	Oldest  time.Time `json:"oldest,omitzero"`   // and since when the oldest of them runs

	// Until is when the override ends that the rule is a part of, and Note who has set that and why; both are zero if the
	// rule is that of the policies.
	Until time.Time `json:"until,omitzero"`
	Note
}

// Explain says why the jobs of a tenant's user wait, and until when.
func (i *Inspector) Explain(ctx context.Context, tenant, user string) (Explanation, error) {
	i, err := i.of(ctx, tenant)
	if err != nil {
		return Explanation{}, err
	}
	e, _, err := i.explain(ctx, tenant, user, store.Lane{})
	return e, err
}

// explain explains the user's next job, or that of a lane with a label, and returns the forecast that the explanation is
// about, too.
func (i *Inspector) explain(ctx context.Context, tenant, user string, about store.Lane) (Explanation, *forecast.Forecast, error) {
	p, waiting, firsts, err := i.forecasts.OfFirsts(ctx, tenant, user)
	if err != nil {
		return Explanation{}, nil, i.failed("explaining in", err)
	}
	views, err := i.store.Tenants(ctx, []string{tenant})
	if err != nil {
		return Explanation{}, nil, i.failed("explaining in", err)
	}
	leases, err := i.store.Leases(ctx)
	if err != nil {
		return Explanation{}, nil, i.failed("explaining in", err)
	}
	next := p.Next(firsts)
	for _, first := range firsts {
		if about.Label != "" && first.Lane == about {
			next = first
		}
	}
	if next.Job == nil {
		next.Lane = store.Lane{Tenant: tenant, User: user}
	}
	e := Explanation{
		Now: envelope.Instant(p.Now), Policy: p.Policies.Of(tenant).Name, TenantWaiting: views[0].Waiting, Waiting: int64(waiting),
		Rules: statesOf(p, next),
	}
	for _, end := range leases {
		if end > p.Now {
			e.Workers++
		}
	}
	if next.Job != nil {
		start, _ := p.Start(next.Lane, next.Job)
		e.Estimate = estimate(start, p.Full(next.Lane, next.Job))
		e.StartBy = envelope.Instant(latest(p, next.Lane, next.Job))
		e.Binding = binding(e)
	}
	return e, p, nil
}

// statesOf returns what pauses, rules and concurrency limits say about a job.
func statesOf(p *forecast.Forecast, job forecast.First) (all []RuleState) {
	_, uses := p.Subjects(job.Lane, job.Job)
	return statesUnder(p, uses)
}

// statesUnder returns what pauses, rules and concurrency limits say about a job that is subject to some limits.
func statesUnder(p *forecast.Forecast, uses []schedule.Use) (all []RuleState) {
	subjects := p.Of(uses)
	of := make([]RuleState, len(uses)) // whose rules they are
	for k, use := range uses {
		of[k] = RuleState{Scope: Scope(use.Name)}
		if !slices.Contains(everybodys[:], of[k].Scope) {
			of[k] = RuleState{Scope: ScopeLimit, Name: use.Name, Key: keyOf(use)}
		}
	}
	for k, s := range subjects {
		if s.Paused > p.Now {
			r := of[k]
			r.Rule, r.When, r.Limit = "paused", envelope.Instant(s.Paused), 1
			all = append(all, r)
		}
	}
	latest := p.Now // until then something keeps the job that is no hours
	for k, s := range subjects {
		for i := range s.Rules.Len() {
			rule, r := s.Rules.RuleAt(i, p.Now), of[k]
			r.Rule, r.When = s.Rules.NameAt(i, p.Now), envelope.Instant(s.Rules.When(&s.State, i, p.Now, max(1, uses[k].Cost)))
			r.Limit, r.Remaining, r.Drops, r.Shadow = most(rule), s.Rules.Room(&s.State, i, p.Now), rule.Drop, rule.Shadow
			if s.Shared != nil {
				r.When, r.Remaining = envelope.Instant(s.Shared.Rules[i].When), s.Shared.Rules[i].Room
			}
			if r.Zone = s.Rules.Rule(i).Zone; r.Zone == rules.OfUser {
				r.Zone = s.State.Zone()
			}
			if o, is := p.Policies.Override(uses[k].Scope); is && o.Rules {
				r.overridden(o)
			}
			if all = append(all, r); !r.Drops && !r.Shadow {
				latest = max(latest, envelope.Micros(r.When))
			}
		}
	}
	closedThen(all, subjects, latest)
	for k, use := range uses {
		n, oldest, most, ok := p.Running(use)
		if !ok {
			continue
		}
		r := of[k]
		r.Rule, r.When, r.Limit, r.Remaining, r.Running = use.Concurrency.String(), envelope.Instant(p.Now), most, max(0, most-n), n
		if n > 0 && oldest > 0 {
			r.Oldest = envelope.Instant(oldest)
		}
		if n >= most {
			r.When = time.Time{}
		}
		if o, is := p.Policies.Override(use.Scope); is && o.Concurrency {
			r.overridden(o)
		}
		all = append(all, r)
	}
	return all
}

// closedThen lets hours say when they open after the instant at which all else allows the job: they may have closed by then.
func closedThen(all []RuleState, subjects []*forecast.Subject, latest int64) {
	for _, s := range subjects {
		if !s.Rules.Closes() {
			continue
		}
		for k := range all {
			if r := &all[k]; r.Rule == s.Rules.HoursName() && !envelope.Instant(latest).Before(r.When) {
				from, _ := s.Rules.Open(&s.State, latest)
				r.When = envelope.Instant(from)
			}
		}
	}
}

// overridden notes that the rule is a part of an override: it forbids no start from its end on.
func (r *RuleState) overridden(o schedule.Override) {
	r.Until, r.Note = envelope.Instant(o.Until), Note{o.Author, o.Reason}
	if r.When.After(r.Until) {
		r.When = r.Until
	}
}

// everybodys are the limits that every job has.
var everybodys = [...]Scope{ScopeQueue, ScopeTenant, ScopeUser}

// most returns how many jobs of cost 1 a rule lets start at once.
func most(rule rules.Rule) int { return min(rule.Most(), math.MaxInt32) }

// binding returns the limit that is reached, or the rule or pause that lets the next job
// start last, if that is not now.
func binding(e Explanation) (last *RuleState) {
	for k := range e.Rules {
		r := &e.Rules[k]
		if r.When.IsZero() {
			return r
		}
		if r.Shadow || r.Drops || !r.When.After(e.Now) {
			continue
		}
		if last == nil || r.When.After(last.When) {
			last = r
		}
	}
	return last
}

// JobState says where a job with the caller's own ID is.
type JobState struct {
	// State is "waiting", "started", "dropped", "dead" or "cancelled".
	State string `json:"state"`

	Tenant string `json:"tenant,omitempty"` // of a waiting job
	User   string `json:"user,omitempty"`

	// Place is the waiting job's place in its lane, or 0 if it is further back than
	// 10,000 or not yet in it (scheduled, or backing off).
	Place int `json:"place"`

	// Estimate is that of the job itself, all zero where Place is 0. It hides the one in
	// Explanation, which is that of its user's next job.
	Estimate

	// Explanation is that of its user, if the job waits.
	Explanation

	// History is what became of the job until now.
	History JobHistory `json:"history,omitzero"`
}

// ExplainJob says where a job with the caller's own ID is, and why it waits there; false
// if the ID is not known, or not any more (see [Job.ID]).
func (i *Inspector) ExplainJob(ctx context.Context, id string) (JobState, bool, error) {
	found, err := inEach(ctx, i, func(p *Inspector) (*JobState, error) { return p.explainJob(ctx, id) })
	if err != nil {
		return JobState{}, false, err
	}
	found = slices.DeleteFunc(found, func(s *JobState) bool { return s == nil })
	if len(found) == 0 {
		return JobState{}, false, nil
	}
	// Jobs of tenants in several partitions may have one ID: that which has not ended says most.
	slices.SortStableFunc(found, func(a, b *JobState) int {
		return slices.Index(afterWaiting, a.State) - slices.Index(afterWaiting, b.State)
	})
	return *found[0], true, nil
}

// afterWaiting are the states of jobs that wait no more, those that say most about a job first.
var afterWaiting = []string{store.WasStarted, store.WasCancelled, store.WasDead, store.WasDropped}

// explainJob is ExplainJob for one partition; nil if the ID is not known there.
func (i *Inspector) explainJob(ctx context.Context, id string) (*JobState, error) {
	where, err := i.store.Where(ctx, id)
	if err != nil {
		return nil, i.failed("explaining a job of", err)
	}
	past, err := i.store.Past(ctx, id)
	if err != nil {
		return nil, i.failed("explaining a job of", err)
	}
	lane, bad := envelope.ParseLane(where)
	if bad != nil {
		if where == "" {
			return nil, nil
		}
		return &JobState{State: where, History: historyOf(past)}, nil
	}
	state := &JobState{State: "waiting", Tenant: lane.Tenant, User: lane.User, History: historyOf(past)}
	at, err := i.find(ctx, lane, id)
	if err != nil {
		return nil, i.failed("explaining a job of", err)
	}
	e, p, err := i.explain(ctx, lane.Tenant, lane.User, lane)
	if err != nil {
		return nil, err
	}
	state.Explanation, state.Place = e, at.place
	switch {
	case at.place == 0:
		return state, nil
	case at.before == 0:
		state.Estimate = e.Estimate // it is its user's next
	default:
		state.Estimate = estimate(p.Turn(lane, at.job, at.before, at.before))
	}
	state.StartBy = envelope.Instant(latest(p, lane, at.job))
	return state, nil
}

// latest returns the latest start of a job, 0 for none. There is no sense in a start after the end
// of its handler's context.
func latest(p *forecast.Forecast, lane store.Lane, job *envelope.Envelope) int64 {
	if len(job.Members) > 0 {
		return p.Policies.Of(lane.Tenant).Latest(job, nil, p.Hours(lane, job))
	}
	return latestSince(p.Policies, lane.Tenant, job, job.Begin(), p.Hours(lane, job))
}

// latestSince is latest for a job that may start from an instant on, and whose limits have such hours.
func latestSince(policies *schedule.Policies, tenant string, job *envelope.Envelope, since int64, hours []schedule.Remembered) int64 {
	by := policies.Of(tenant).Deadline(job.Deadline, since, hours)
	if job.Until > 0 && (by == 0 || job.Until < by) {
		return job.Until
	}
	return by
}
