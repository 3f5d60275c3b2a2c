package queue

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/waterclock/waterclock/internal/limits"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/forecast"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A batch is jobs that are offered together. Sent again under its name it is not doubled.
type batch struct {
	name  string
	jobs  []Job
	seals []*envelope.Envelope
	idFor func(Job) time.Duration

	limited []limited // what policies say of each job, as limitedBy has found out
	by      *schedule.Policies
}

// limited is what policies say of a job: what limits it, the label of its lane, and why it is invalid.
type limited struct {
	uses    []schedule.Use
	label   string
	invalid error
}

func newBatch(jobs []Job, idFor func(Job) time.Duration) *batch {
	b := &batch{name: rand.Text(), jobs: jobs, seals: make([]*envelope.Envelope, len(jobs)), idFor: idFor}
	for i, j := range jobs {
		b.seals[i] = seal(j)
	}
	return b
}

// timed reports whether an instant decides about one of the jobs: then Redis's clock, the
// states and the pauses have to be known before.
func (b *batch) timed(policies *schedule.Policies) bool {
	for i, j := range b.jobs {
		if !j.NotBefore.IsZero() || j.DigestKey != "" && policies.Of(j.Tenant).Digest.At != nil || latestSince(policies, j.Tenant, b.seals[i], 1, nil) > 0 {
			return true
		}
	}
	return false
}

// callsBack reports whether somebody is to be told how one of the jobs has ended.
func (b *batch) callsBack() bool {
	return slices.ContainsFunc(b.jobs, func(j Job) bool { return j.Callback.URL != "" })
}

// latest returns the latest start of a job that may start from an instant on, 0 for none.
func (b *batch) latest(p *forecast.Forecast, i int, since int64) int64 {
	return latestSince(p.Policies, b.jobs[i].Tenant, b.seals[i], since, p.Hours(b.lane(i), b.seals[i]))
}

// offer returns the batch as the store takes it.
func (b *batch) offer(policies *schedule.Policies) store.Offer {
	o := store.Offer{Batch: b.name, Keep: batchMemory, Policies: policies.InForce(), Jobs: make([]store.OfferJob, 0, len(b.jobs))}
	tenants, scopes, subjects := make(map[string]int), make(map[string]bool), make(map[string]int)
	for i, j := range b.jobs {
		policy := policies.Of(j.Tenant)
		number, known := tenants[j.Tenant]
		if !known {
			number = len(o.Tenants)
			tenants[j.Tenant] = number
			o.Tenants = append(o.Tenants, store.OfferTenant{Name: j.Tenant, Capacity: policy.Capacity, MakesRoom: policy.DropOldest})
		}
		offered := b.offerJob(i, number, policies)
		if policies.OfUsers() {
			if scope := envelope.PersonScope(j.Tenant, j.User); !scopes[scope] {
				scopes[scope] = true
				o.Scopes = append(o.Scopes, scope)
			}
		}
		for _, limit := range b.limitedBy(policies)[i].uses {
			if limit.Rules.Len() > 0 && !scopes[limit.Scope] {
				scopes[limit.Scope] = true
				o.Scopes = append(o.Scopes, limit.Scope)
			}
			if limit.Capacity > 0 && limit.Name != limits.Tenant {
				offered.Subjects = append(offered.Subjects, b.subject(&o, subjects, limit, i))
			}
		}
		o.Jobs = append(o.Jobs, offered)
	}
	return o
}

// subject returns the place of a limit with a capacity among the subjects of an offer.
func (b *batch) subject(o *store.Offer, known map[string]int, limit schedule.Use, i int) int {
	number, there := known[limit.Scope]
	if !there {
		number = len(o.Subjects)
		known[limit.Scope] = number
		s := store.OfferSubject{Scope: limit.Scope, Capacity: limit.Capacity, Rule: limit.CapacityName()}
		if limit.Name == limits.User {
			s.Plain = envelope.PlainLanes(b.jobs[i].Tenant, b.jobs[i].User)
		}
		o.Subjects = append(o.Subjects, s)
	}
	return number
}

// scopes returns the scopes of all jobs: what may limit or pause them.
func (b *batch) scopes(policies *schedule.Policies) (all []string) {
	seen := make(map[string]bool)
	for i, of := range b.limitedBy(policies) {
		if policies.OfUsers() {
			if scope := envelope.PersonScope(b.jobs[i].Tenant, b.jobs[i].User); !seen[scope] {
				seen[scope] = true
				all = append(all, scope)
			}
		}
		for _, limit := range of.uses {
			if !seen[limit.Scope] {
				seen[limit.Scope] = true
				all = append(all, limit.Scope)
			}
		}
	}
	return all
}

// limitedBy returns what policies say of the jobs. Of the policies that it was asked about last it knows.
func (b *batch) limitedBy(policies *schedule.Policies) []limited {
	if b.limited == nil || b.by != policies {
		b.limited, b.by = make([]limited, len(b.jobs)), policies
		for i := range b.limited {
			of := &b.limited[i]
			of.uses, of.label, of.invalid = policies.Job(b.lane(i), b.seals[i])
		}
	}
	return b.limited
}

// lane returns the lane of a job, without its label.
func (b *batch) lane(i int) store.Lane {
	return store.Lane{Tenant: b.jobs[i].Tenant, User: b.jobs[i].User, Priority: b.seals[i].Priority}
}

// check returns an error that wraps [ErrInvalidJob] if the limits of policies need something of a job that it lacks.
func (b *batch) check(policies *schedule.Policies) error {
	for i, of := range b.limitedBy(policies) {
		if of.invalid != nil {
			return fmt.Errorf("job %d of %d: %w: %w", i+1, len(b.jobs), ErrInvalidJob, of.invalid)
		}
	}
	return nil
}

// offerJob returns a job as the store takes it. It is refused if one of its limits never has room for it.
func (b *batch) offerJob(i, tenant int, policies *schedule.Policies) store.OfferJob {
	j, e := b.jobs[i], *b.seals[i]
	offered := store.OfferJob{
		Tenant: tenant, Lane: b.lane(i), NotBefore: envelope.Micros(j.NotBefore),
		ID: j.ID, IDFor: b.idFor(j), Collapse: j.CollapseKey, Spilled: e.Spilled,
	}
	if j.DigestKey != "" {
		offered.Digest, offered.Costs, offered.Terms = j.DigestKey, e.Costing(), digestTerms(policies.Of(j.Tenant).Digest)
	}
	if e.Spilled != "" {
		offered.Payload = j.Payload
	}
	limited := b.limitedBy(policies)[i]
	offered.Lane.Label = limited.label
	e.NotBefore = offered.NotBefore
	offered.Body = e.Body()
	for _, limit := range limited.uses {
		if rule := limit.Rules.Impossible(limit.Cost); rule >= 0 {
			offered.Refuse, offered.Rule = string(ReasonImpossible), limit.RuleName(rule)
			return offered
		}
	}
	return offered
}

// digestTerms returns what a policy says of digests as the store takes it.
func digestTerms(d schedule.Digest) store.DigestTerms {
	return store.DigestTerms{Max: cmp.Or(d.Max, schedule.DigestMax), Wait: d.Wait, Idle: d.Idle}
}

// judge says of each job whether its time has come, and whether it is certain to start after its
// latest start.
func (b *batch) judge(o *store.Offer, p *forecast.Forecast) {
	for i := range o.Jobs {
		offered, e := &o.Jobs[i], *b.seals[i]
		if ahead := offered.NotBefore - p.Now; ahead > 0 {
			offered.IDFor += time.Duration(ahead) * time.Microsecond
		} else if offered.NotBefore > 0 {
			offered.NotBefore, offered.Body = 0, e.Body()
		}
		if digest := p.Policies.Of(b.jobs[i].Tenant).Digest; offered.Digest != "" && digest.At != nil {
			offered.Terms.Due = digest.Due(p.Clock(b.lane(i)), p.Now)
		}
		since := max(p.Now, offered.NotBefore)
		latest := b.latest(p, i, since)
		if latest == 0 || offered.Refuse != "" || offered.Digest != "" { // when a digest starts is not known
			continue
		}
		start, known := since, true
		if latest >= since && offered.NotBefore == 0 {
			start, known = p.Start(b.lane(i), &e)
		}
		if known && start > latest {
			offered.Refuse = string(ReasonExpired)
		}
	}
}

// limitsRunning reports whether a concurrency limit counts for one of the jobs.
func (b *batch) limitsRunning(policies *schedule.Policies) bool {
	return policies.Counts() && slices.ContainsFunc(b.jobs, func(j Job) bool { return policies.CountsFor(j.Tenant) })
}

// receipts returns the receipts of the batch.
func (b *batch) receipts(reply store.OfferReply, policies *schedule.Policies, running *forecast.Census) []Receipt {
	p := forecast.New(policies, store.View{Now: reply.Now, Pauses: reply.Pauses, States: reply.States}, running)
	receipts, limited := make([]Receipt, len(b.jobs)), b.limitedBy(policies)
	for i, from := range reply.Receipts {
		j, r := b.jobs[i], receiptOf(b.jobs[i], from)
		switch from.Status {
		case store.StatusAccepted:
			r.Estimate = estimate(p.TurnUnder(limited[i].uses, b.lane(i), b.seals[i], from.Waiting, from.Place-1))
			r.StartBy = envelope.Instant(b.latest(p, i, max(p.Now, envelope.Micros(j.NotBefore))))
		case store.StatusLater:
			r.Start, r.StartBy = j.NotBefore, envelope.Instant(b.latest(p, i, envelope.Micros(j.NotBefore)))
		}
		if r.Digest = from.Digest; from.Status == store.StatusJoined {
			r.Start, r.StartBy = envelope.Instant(from.Due), envelope.Instant(b.latest(p, i, max(reply.Now, from.Due)))
		}
		receipts[i] = r
	}
	return receipts
}

// replaced returns the IDs, and the names of payloads that are kept apart, of the jobs
// that others took the place of.
func replaced(reply store.OfferReply) (ids, spilled []string) {
	for _, beginning := range reply.Replaced {
		head, ok := envelope.Head(beginning)
		if ok && head.ID != "" {
			ids = append(ids, head.ID)
		}
		if ok && head.Spilled != "" {
			spilled = append(spilled, head.Spilled)
		}
	}
	return ids, spilled
}

// estimate returns what a forecast says of a job's turn.
func estimate(start int64, limit string) Estimate {
	return Estimate{Start: envelope.Instant(start), AtEarliest: limit != "", Limit: limit}
}
