package queue

import (
	"crypto/rand"
	"slices"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A batch is jobs that are offered together. Sent again under its name it is not doubled.
type batch struct {
	name  string
	jobs  []Job
	seals []*envelope.Envelope
	idFor func(Job) time.Duration
}

func newBatch(jobs []Job, idFor func(Job) time.Duration) *batch {
	b := &batch{name: rand.Text(), jobs: jobs, idFor: idFor}
	for _, j := range jobs {
		b.seals = append(b.seals, seal(j))
	}
	return b
}

// timed reports whether an instant decides about one of the jobs: then Redis's clock, the
// states and the pauses have to be known before.
func (b *batch) timed(policies *schedule.Policies) bool {
	for i, j := range b.jobs {
		if !j.NotBefore.IsZero() || b.deadline(policies, i, 1) > 0 {
			return true
		}
	}
	return false
}

// deadline returns the latest start of a job that may start from an instant on, 0 for none.
func (b *batch) deadline(policies *schedule.Policies, i int, since int64) int64 {
	return latestSince(policies, b.jobs[i].Tenant, b.seals[i], since)
}

// offer returns the batch as the store takes it.
func (b *batch) offer(policies *schedule.Policies) store.Offer {
	o := store.Offer{Batch: b.name, Keep: batchMemory, Policies: version(policies)}
	tenants, scopes := make(map[string]int), make(map[string]bool)
	for i, j := range b.jobs {
		policy := policies.Of(j.Tenant)
		number, known := tenants[j.Tenant]
		if !known {
			number = len(o.Tenants)
			tenants[j.Tenant] = number
			o.Tenants = append(o.Tenants, store.OfferTenant{Name: j.Tenant, Capacity: policy.Capacity, MakesRoom: policy.DropOldest})
		}
		for _, limit := range limits(policies, j.Tenant, j.User) {
			if limit.set.Len() > 0 && !scopes[limit.scope] {
				scopes[limit.scope] = true
				o.Scopes = append(o.Scopes, limit.scope)
			}
		}
		o.Jobs = append(o.Jobs, b.offerJob(i, number, policies))
	}
	return o
}

// scopes returns the scopes of all jobs: what may limit or pause them.
func (b *batch) scopes() (all []string) {
	seen := make(map[string]bool)
	for _, j := range b.jobs {
		for _, limit := range limits(nil, j.Tenant, j.User) {
			if !seen[limit.scope] {
				seen[limit.scope] = true
				all = append(all, limit.scope)
			}
		}
	}
	return all
}

func (b *batch) offerJob(i, tenant int, policies *schedule.Policies) store.OfferJob {
	j, e := b.jobs[i], *b.seals[i]
	offered := store.OfferJob{
		Tenant: tenant, Lane: store.Lane{Tenant: j.Tenant, User: j.User, Priority: e.Priority}, NotBefore: micros(j.NotBefore),
		ID: j.ID, IDFor: b.idFor(j), Collapse: j.CollapseKey, Spilled: e.Spilled,
	}
	if e.Spilled != "" {
		offered.Payload = j.Payload
	}
	e.NotBefore = offered.NotBefore
	offered.Body = e.Body()
	for _, limit := range limits(policies, j.Tenant, j.User) {
		if rule := limit.set.Impossible(e.Cost); rule >= 0 {
			offered.Refuse, offered.Rule = string(ReasonImpossible), limit.set.Name(rule)
			return offered
		}
	}
	return offered
}

// judge says of each job whether its time has come, and whether it is certain to miss its
// deadline.
func (b *batch) judge(o *store.Offer, p *picture) {
	for i := range o.Jobs {
		offered, e := &o.Jobs[i], *b.seals[i]
		if ahead := offered.NotBefore - p.now; ahead > 0 {
			offered.IDFor += time.Duration(ahead) * time.Microsecond
		} else if offered.NotBefore > 0 {
			offered.NotBefore, offered.Body = 0, e.Body()
		}
		since := max(p.now, offered.NotBefore)
		deadline := b.deadline(p.policies, i, since)
		if deadline == 0 || offered.Refuse != "" {
			continue
		}
		start, known := since, true
		if deadline >= since && offered.NotBefore == 0 {
			start, known = p.earliest(b.jobs[i].Tenant, b.jobs[i].User, e.Cost)
		}
		if known && start > deadline {
			offered.Refuse = string(ReasonExpired)
		}
	}
}

// limitsRunning reports whether a concurrency limit counts for one of the jobs.
func (b *batch) limitsRunning(policies *schedule.Policies) bool {
	return policies.Counts() && slices.ContainsFunc(b.jobs, func(j Job) bool { return limitsRunning(policies, j.Tenant) })
}

// receipts returns the receipts of the batch.
func (b *batch) receipts(reply store.OfferReply, policies *schedule.Policies, running *census) []Receipt {
	p := newPicture(policies, store.View{Now: reply.Now, Pauses: reply.Pauses, States: reply.States})
	p.census = running
	receipts := make([]Receipt, len(b.jobs))
	for i, from := range reply.Receipts {
		j, r := b.jobs[i], receiptOf(b.jobs[i], from)
		switch from.Status {
		case store.StatusAccepted:
			before := ahead{tenant: from.Waiting, user: from.Place - 1}
			r.Estimate = p.estimate(j.Tenant, j.User, before)
			r.StartBy = instant(b.deadline(policies, i, max(p.now, micros(j.NotBefore))))
		case store.StatusLater:
			r.Start, r.StartBy = j.NotBefore, instant(b.deadline(policies, i, micros(j.NotBefore)))
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

// A limit is the rules of a scope, and how much of it runs at once.
type limit struct {
	scope       string
	set         *rules.Set
	concurrency schedule.Concurrency
}

// limits returns what limits a user: the queue's, the tenant's and the user's rules.
func limits(policies *schedule.Policies, tenant, user string) [3]limit {
	policy := policies.Of(tenant)
	all := [3]limit{
		{scope: envelope.QueueScope},
		{envelope.TenantScope(tenant), policy.Tenant, policy.TenantConcurrency},
		{envelope.UserScope(tenant, user), policy.User, policy.UserConcurrency},
	}
	if policies != nil {
		all[0].set, all[0].concurrency = policies.Queue, policies.QueueConcurrency
	}
	return all
}

func version(policies *schedule.Policies) int64 {
	if policies == nil {
		return 0
	}
	return policies.Version
}
