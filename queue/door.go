package queue

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/waterclock/waterclock/queue/internal/forecast"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A door is where jobs come into one partition of a queue, or into a queue that is not divided.
type door struct {
	store    *store.Store
	barrier  *barrier // nil if offers wait for nothing
	policies *forecast.PolicyCache
	census   *forecast.CensusCache
}

func newDoor(s *store.Store, durability Durability) *door {
	d := &door{store: s, policies: forecast.NewPolicyCache(s), census: forecast.NewCensusCache()}
	if durability != (Durability{}) {
		d.barrier = newBarrier(s, durability)
	}
	return d
}

var (
	// errDivided is the error of an offer to a queue that had one partition when one looked: it has several by now, and nothing was
	// offered.
	errDivided = errors.New("queue: it has several partitions by now")
	// errNotReady is that of an offer to a partition which does not have the policies of its queue yet: without them nobody may offer there.
	errNotReady = errors.New("queue: one of its partitions does not have the policies yet")
)

// idMemory is how long the ID of a job is known.
func idMemory(Job) time.Duration { return store.IDMemory }

// running counts what runs, if a concurrency limit counts for one of the jobs. What cannot
// be counted costs the receipts their estimates, and not the jobs.
func (d *door) running(ctx context.Context, b *batch, policies *schedule.Policies, now int64) *forecast.Census {
	if !b.limitsRunning(policies) {
		return nil
	}
	return d.census.At(ctx, d.store, policies, now)
}

// offer offers one batch, again and again while Redis cannot be reached.
func (d *door) offer(ctx context.Context, b *batch) (receipts []Receipt, err error) {
	err = patiently(ctx, func() error {
		reply, policies, err := d.send(ctx, b)
		if err == nil && d.barrier != nil {
			err = d.barrier.wait(ctx, b.name)
		}
		if err != nil {
			return err
		}
		// The batch has arrived: what is left of replaced jobs must not fail it.
		ids, spilled := replaced(reply)
		_ = d.store.Dropped(ctx, ids, spilled)
		receipts = b.receipts(reply, policies, d.running(ctx, b, policies, reply.Now))
		return nil
	})
	return receipts, err
}

// newPolicies bounds how often a batch is sent again because the policies have changed.
const newPolicies = 10

// send sends a batch under the policies in force, which it returns.
func (d *door) send(ctx context.Context, b *batch) (store.OfferReply, *schedule.Policies, error) {
	if d.store.Of > 1 && d.policies.Known() == nil {
		if err := d.policies.Reload(ctx); err != nil {
			return store.OfferReply{}, nil, err
		}
	}
	for range newPolicies {
		policies := d.policies.Known()
		if err := d.fits(policies); err != nil {
			return store.OfferReply{}, nil, err
		}
		invalid := b.check(policies)
		if invalid == nil {
			reply, err := d.sendUnder(ctx, b, policies)
			if err == nil && !policies.HoldAt(reply.Now) { // an override has ended: no reason to offer again
				_ = d.policies.Reload(ctx)
			}
			if !errors.Is(err, store.ErrStale) {
				return reply, policies, err
			}
		}
		if err := d.policies.Reload(ctx); err != nil {
			return store.OfferReply{}, nil, err
		}
		if invalid != nil && d.policies.Known().InForce() == policies.InForce() {
			return store.OfferReply{}, nil, invalid
		}
	}
	return store.OfferReply{}, nil, errors.New("the policies in force are missing in Redis, or change too often to be read; set them again")
}

// fits returns an error if jobs must not be offered here under policies.
func (d *door) fits(policies *schedule.Policies) error {
	switch {
	case d.store.Of == 1 && policies != nil && policies.Partitions > 1:
		return errDivided
	case d.store.Of > 1 && (policies == nil || policies.Partitions != d.store.Of):
		return errNotReady
	}
	return nil
}

// sendUnder sends a batch under the given policies. It fails with [store.ErrStale] if
// others are in force.
func (d *door) sendUnder(ctx context.Context, b *batch, policies *schedule.Policies) (store.OfferReply, error) {
	if people := clocksOf(b.jobs); len(people) > 0 {
		if err := d.store.SetPeople(ctx, people, true); err != nil {
			return store.OfferReply{}, err
		}
	}
	o := b.offer(policies)
	if b.timed(policies) {
		view, err := d.store.Look(ctx, b.scopes(policies))
		if err != nil {
			return store.OfferReply{}, err
		}
		if view.Policies != policies.InForce() {
			return store.OfferReply{}, store.ErrStale
		}
		b.judge(&o, forecast.New(policies, view, nil))
	}
	if b.callsBack() {
		if err := d.store.CallsBack(ctx); err != nil {
			return store.OfferReply{}, err
		}
	}
	return d.store.Offer(ctx, o)
}

// receiptOf reads what became of a job.
func receiptOf(job Job, from store.OfferReceipt) Receipt {
	r := Receipt{ID: cmp.Or(job.ID, from.Stamp), Place: from.Place}
	switch from.Status {
	case store.StatusAccepted, store.StatusLater, store.StatusJoined:
		r.Status = Accepted
	case store.StatusReplaced:
		r.Status = Replaced
	case store.StatusDuplicate:
		r.Status = Duplicate
	default:
		r.Status, r.Reason, r.Rule = Dropped, Reason(from.Reason), from.Rule
	}
	return r
}
