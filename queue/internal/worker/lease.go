package worker

import (
	"context"
	"sync"
	"time"

	"github.com/waterclock/waterclock/queue/internal/clock"
	"github.com/waterclock/waterclock/queue/internal/retry"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A beat does four things with one script:
//
//  1. It renews the worker's lease, for all of its claims at once.
//  2. It tells the leader, by the worker's record, how many places are left, how badly the worker knows the time,
//     and up to when all claims have started ([Worker.startedThrough]): if this worker dies, the attempts of those
//     count as used.
//  3. It brings what the worker has to know: Redis's clock, whether somebody leads, the version of the policies,
//     and how many claims Redis has of this worker.
//  4. Where that number differs from what is held here twice in a row, a message was lost: the claims are compared.
//
// While the worker has a lease, nothing that goes by the user's connections comes between two beats: one that is dead would be
// waited for as long as the lease lasts. It is done in the background.
//
// A worker whose lease has ended and whose claims were taken back, since it was frozen or cut off, learns that by a beat,
// and begins anew with the next one. The claims are lost: their handlers' contexts end. A beat that arrives when its
// worker has left has no effect.

// Beat keeps the worker's lease until ctx ends. It beats each quarter of the lease, and sooner while the worker knows
// the time badly, while the number of claims differs, and when its other queues have changed its places. When the first
// beat has given the worker a lease it is in the fleet ([Worker.Listed]), and may lead.
func (w *Worker) Beat(ctx context.Context) {
	trouble := retry.NewTrouble(w.Log, "renewing the lease")
	leased, mismatches, hurried := false, 0, 0
	since := int64(0)
	listed := sync.OnceFunc(func() {
		close(w.listed)
		go w.register(ctx)
	})
	for ctx.Err() == nil {
		if !leased {
			w.LearnTime(ctx)
		}
		now, doubt := w.Clock.Now()
		places := w.Places.Left()
		if w.Stopping() {
			places = 0
		}
		beat := store.Beat{
			Worker: w.Name, Lease: w.Lease, Leased: leased,
			Record: store.WorkerRecord{
				Places: places, Doubt: min(doubt, time.Hour), Started: w.startedThrough(now), Host: w.cfg.Host, Of: w.cfg.Of,
				Since: since, Version: w.cfg.Version, Late: w.delays.p99(),
			},
		}
		reply, err := retry.Persist(ctx, w.Patience(), func(ctx context.Context) (store.BeatReply, error) { return w.Store.Beat(ctx, beat) })
		wait := w.Lease / 4
		if doubt <= clock.Good {
			hurried = 0
		} else if hurried < hurry { // it will be less soon, and the leader should know
			hurried++
			wait = min(wait, 200*time.Millisecond)
		}
		if again := trouble.After(err); again > 0 {
			retry.Pause(ctx, min(again, w.Lease/10))
			continue
		}
		w.Clock.Observe(reply.Reading)
		if w.Policies.Saw(reply.Policies) {
			w.reading.run(func() { w.readPolicies(ctx) })
		}
		if w.cfg.Listened != nil {
			w.cfg.Listened(clock.Micros(reply.Listened - reply.Now))
		}
		if since == 0 || since > reply.Now {
			since = reply.Now
		}
		if reply.Till <= reply.Now {
			w.elector.Look()
		}
		if leased = reply.Alive; !leased {
			w.compare(ctx)
			continue
		}
		listed()
		// What Redis says and what is held may differ for a moment. If they still differ at the
		// next beat, a message was lost. A returned claim is compared too: the leader sends no
		// message when it has taken one back.
		if reply.Held != w.Claims.count() || w.Claims.returning() > 0 {
			mismatches++
			wait = min(wait, 200*time.Millisecond)
		} else {
			mismatches = 0
		}
		if mismatches >= 2 {
			w.compare(ctx)
			mismatches = 0
		}
		w.rest(ctx, wait, places)
	}
}

// rest waits for the next beat. It comes sooner if the worker's other queues have taken so
// many places, or given back, that the leader should know. Who leads knows its own.
func (w *Worker) rest(ctx context.Context, wait time.Duration, told int) {
	const least = 50 * time.Millisecond
	begin, timer := time.Now(), time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case <-w.Places.changed:
		}
		w.tellHungry()
		if _, leads := w.leader(); leads {
			continue
		}
		if left := w.Places.Left(); 4*max(left-told, told-left) > min(left, told) {
			retry.Pause(ctx, least-time.Since(begin))
			return
		}
	}
}

// register puts the queue into the list of all queues. That is for people: where it is not
// allowed nothing else fails.
func (w *Worker) register(ctx context.Context) {
	if err := w.Store.Register(ctx); err != nil {
		w.Log.Debug("putting the queue into the list of queues", "err", err)
	}
}

// hurry is how many beats in a row follow each other closely for the sake of the clock: a
// worker that is far away knows it no better.
const hurry = 10

// LearnTime reads Redis's clock, again and again while the replies take long: the leader
// gives jobs late, or none, to a worker that does not know the time.
func (w *Worker) LearnTime(ctx context.Context) {
	for range 8 {
		w.askTime(ctx)
		if _, doubt := w.Clock.Now(); doubt <= clock.Good {
			return
		}
	}
}

// askTime asks Redis for the time.
func (w *Worker) askTime(ctx context.Context) {
	if reading, err := retry.Persist(ctx, w.Patience(), w.Store.Clock); err == nil {
		w.Clock.Observe(reading)
	}
}

// onItsWay is how long a claim may take from its commit to its worker.
const onItsWay = time.Second

// startedThrough returns an instant such that every claim of this worker with an earlier slot has started, or was taken
// back. Claims that wait for their slots or were returned bound it. So does a second: a claim that was committed may
// not have arrived yet. If this worker dies, claims with earlier slots have used an attempt.
func (w *Worker) startedThrough(now int64) int64 {
	now -= onItsWay.Microseconds()
	w.Claims.mu.Lock()
	defer w.Claims.mu.Unlock()
	for claim, h := range w.Claims.held {
		if !h.started.Load() && !h.over {
			if claim.Valid() {
				now = min(now, claim.Spent)
			}
		}
	}
	for claim := range w.Claims.returned {
		if claim.Valid() {
			now = min(now, claim.Spent)
		}
	}
	return now
}
