package leader

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A concurrency limit that counts jobs of several partitions leases its places to them: this partition may run so many at once. How many each
// has stands where the queue has what its partitions share. A term tells there how many it keeps, and asks for more, beside the rounds.
//
// Why no more runs than the limit lets:
//
//  1. A script adds up what the partitions have, and leases what is left (lease.lua). It runs alone.
//  2. A term uses fewer places before it tells so, and more after it was told so. So it never uses more than it has there, whichever
//     tellings were lost.
//  3. Of tellings that overtake each other the last counts, and none of a leader of before: they have numbers.
//  4. Leases do not end by themselves. Whoever leads next begins with what runs in Redis, and tells that first, in the place of all that
//     was told before. What a leader of before has decided and not committed can happen no more by then.
//
// If the Redis that has the leases loses what it has answered for, more may run than the limit lets until all partitions have told
// anew, which they do every second.
//
// Whoever waits for places costs nothing: the script says who may have those that were given back, and whoever gave them back rings there
// ([store.Store.Ring]). It asks by itself now and then, since a ring may be lost.

// leases are what a term knows of the places that it has.
type leases struct {
	told   bool             // what runs was told, since everything was read
	number int64            // of the last telling
	read   int64            // the number of the last telling when everything was read
	asking bool             // a telling is under way
	rung   bool             // there may be places
	ill    bool             // it was said that the last telling had no answer
	next   int64            // no other telling before, in µs of the queue's clock
	of     map[string]lease // by scope
	at     int64            // when there is something to tell next, in µs of the queue's clock; Never for nothing
}

// A lease is what a term knows of the places of a limit.
type lease struct {
	most  int   // that the limit lets run
	has   int   // in Redis, or more
	short bool  // there were fewer than were wanted
	spare int64 // since when there are more than are used; 0 if there are not
	asked int64 // when it was told last; 0 if it was not
}

const (
	// tellEvery is the time between two tellings, at least.
	tellEvery = time.Millisecond
	// spareFor is how long places are kept that nobody uses.
	spareFor = 20 * time.Millisecond
	// waitEvery is how often places are asked for again by somebody whom nobody has rung.
	waitEvery = 500 * time.Millisecond
	// tellAgain is how often places are told of that have not changed.
	tellAgain = time.Second
	// mostTold is of how many limits one telling is.
	mostTold = 100
)

// forgetLeases lets the next telling replace all that was told before: everything was read again, or there are other limits.
func (t *term) forgetLeases() {
	t.leases.told, t.leases.of, t.leases.next, t.leases.read = false, make(map[string]lease), 0, t.leases.number
}

// leasePlaces tells how many places are kept of limits that count jobs of several partitions, and asks for more.
func (t *term) leasePlaces() {
	t.leases.at = schedule.Never
	if t.w.Store.Of == 1 || t.leases.asking || t.uncounted {
		return
	}
	now, _ := t.w.Clock.Now()
	if t.leases.next > now {
		t.leases.at = t.leases.next
		return
	}
	all := t.withUnused(t.sched.Leasing(now))
	t.leases.next = now + tellEvery.Microseconds() + 10*int64(len(all))
	asks := t.leaseAsks(all, now)
	if len(asks) == 0 && t.leases.told {
		return
	}
	t.leases.asking, t.leases.rung = true, false
	t.leases.number++
	telling := store.LeaseTelling{Token: t.fence.Token, Number: t.leases.number, All: !t.leases.told, Patience: 3 * waitEvery, Asks: asks}
	t.workers.Go(func() { t.tell(t.ctx, telling) })
}

// leaseAsks returns what is to be told now, and notes when there is something next.
func (t *term) leaseAsks(all []schedule.Leasing, now int64) (asks []store.LeaseAsk) {
	free := t.fleet.free()
	for _, l := range all {
		is := t.leases.of[l.Scope]
		is.most = l.Most
		ask := store.LeaseAsk{Scope: l.Scope, Most: l.Most, Keeps: max(l.Leased, l.Running), Weight: l.Weight}
		if l.Running >= l.Leased {
			ask.Wants = min(l.Wants, free)
		}
		at := t.tellAt(is, ask, now)
		if gives := is.givesAt(l, now); gives <= now { // these places are used no more from now on
			at, is.spare, ask.Keeps = now, 0, l.Running+l.Wants
			t.sched.Step(now, schedule.Leased{Scope: l.Scope, Places: ask.Keeps})
		} else {
			at = min(at, gives)
		}
		t.leases.of[l.Scope] = is
		switch {
		case at > now:
			t.leases.at = min(t.leases.at, at)
		case len(asks) >= mostTold && t.leases.told: // what replaces all is told at once
			t.leases.at = now
		default:
			asks = append(asks, ask)
		}
	}
	return asks
}

// withUnused adds the limits of which there are places in Redis, and nothing here: the last job of several has ended, and its place was
// promised to others.
func (t *term) withUnused(all []schedule.Leasing) []schedule.Leasing {
	known := make(map[string]bool, len(all))
	for _, l := range all {
		known[l.Scope] = true
	}
	for scope, is := range t.leases.of {
		if is.has > 0 && !known[scope] {
			all = append(all, schedule.Leasing{Scope: scope, Most: is.most})
		}
	}
	return all
}

// tellAt returns when a limit is to be told of: now, if something has changed; otherwise again after some time.
func (t *term) tellAt(is lease, ask store.LeaseAsk, now int64) int64 {
	switch waits := ask.Wants > 0; {
	case !t.leases.told, is.has > ask.Keeps, waits && !is.short, waits && t.leases.rung:
		return now
	case waits:
		return is.asked + waitEvery.Microseconds()
	}
	return is.asked + tellAgain.Microseconds()
}

// givesAt returns when places are given back that nobody uses; Never if all are used.
func (l *lease) givesAt(of schedule.Leasing, now int64) int64 {
	switch {
	case of.Leased <= of.Running+of.Wants:
		l.spare = 0
		return schedule.Never
	case l.spare == 0:
		l.spare = now
	}
	return l.spare + spareFor.Microseconds()
}

// tell tells, and lets the rounds take in the answer.
func (t *term) tell(ctx context.Context, of store.LeaseTelling) {
	leases, err := t.w.Store.Lease(ctx, of)
	ring := make(map[int]bool)
	for _, l := range leases {
		for _, partition := range l.Ring {
			ring[partition] = true
		}
	}
	t.report(ctx, func(now int64) {
		t.leases.asking = false
		if of.Number <= t.leases.read {
			return
		}
		if err != nil {
			t.untold(of, err, now)
			return
		}
		t.leases.told, t.leases.ill = true, false
		for k, ask := range of.Asks {
			t.leased(ask, leases[k], now)
		}
	})
	for partition := range ring {
		if err := t.w.Store.Ring(ctx, partition); err != nil {
			t.w.Log.Debug("ringing another partition", "partition", partition, "err", err)
		}
	}
}

// untold notes that nobody knows what became of a telling: the next one says anew what is kept.
func (t *term) untold(of store.LeaseTelling, err error, now int64) {
	if len(of.Asks) > 0 && !t.leases.ill && !errors.Is(err, store.ErrUntold) && t.ctx.Err() == nil {
		t.leases.ill = true
		t.w.Log.Warn("places of concurrency limits cannot be asked for; jobs that wait for them wait on", "err", err)
	}
	t.leases.next = now + (askAgain/4 + rand.N(askAgain/4)).Microseconds()
	for _, ask := range of.Asks {
		is := t.leases.of[ask.Scope]
		is.asked, is.short, is.has = 0, false, max(is.has, ask.Keeps+ask.Wants)
		t.leases.of[ask.Scope] = is
	}
}

// leased takes in how many places there are of a limit.
func (t *term) leased(ask store.LeaseAsk, got store.Lease, now int64) {
	is := t.leases.of[ask.Scope]
	is.has, is.asked, is.short = got.Places, now, got.Places < ask.Keeps+ask.Wants
	if got.Places == 0 && ask.Wants == 0 {
		delete(t.leases.of, ask.Scope)
	} else {
		t.leases.of[ask.Scope] = is
	}
	if t.sched.Step(now, schedule.Leased{Scope: ask.Scope, Places: min(got.Places, got.Uses)}) {
		t.roomy = true
	}
}
