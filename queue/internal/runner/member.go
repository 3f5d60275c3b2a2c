package runner

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// Words that the leader puts into a worker's hand, with two more each.
const (
	wordJob  = "!job"    // then a claim and its job, or "" if the job has to be read
	wordNext = "!next"   // the same, and others wait for the end of the job
	wordVice = "!deputy" // then the worker's name or "", and "": look after the leader, or no more
)

const wordsEach = 3

// beat keeps the worker's lease until ctx ends.
func (r *Runner) beat(ctx context.Context) {
	trouble := newTrouble(r.log, "renewing the lease")
	leased, mismatches, hurried := false, 0, 0
	since := int64(0)
	for ctx.Err() == nil {
		if !leased {
			r.learnTime(ctx)
		}
		now, doubt := r.clock.now()
		places := r.places.left()
		if r.stopping() {
			places = 0
		}
		beat := store.Beat{
			Worker: r.cfg.Worker, Lease: r.cfg.Lease, Leased: leased,
			Record: store.WorkerRecord{
				Places: places, Doubt: min(doubt, time.Hour), Started: r.startedThrough(now), Host: r.cfg.Host,
				Since: since, Version: r.cfg.Version, Late: r.delays.p99(),
			},
		}
		reply, err := persist(ctx, r.patience(), func(ctx context.Context) (store.BeatReply, error) { return r.store.Beat(ctx, beat) })
		wait := r.cfg.Lease / 4
		if doubt <= goodDoubt {
			hurried = 0
		} else if hurried < hurry { // it will be less soon, and the leader should know
			hurried++
			wait = min(wait, 200*time.Millisecond)
		}
		if retry := trouble.after(err); retry > 0 {
			pause(ctx, min(retry, r.cfg.Lease/10))
			continue
		}
		r.clock.observe(reply.Reading)
		r.sawPolicies(ctx, reply.Policies)
		if r.cfg.Listened != nil {
			r.cfg.Listened(micros(reply.Listened - reply.Now))
		}
		if since == 0 || since > reply.Now {
			since = reply.Now
		}
		if !leased {
			close(r.listed)
			r.register(ctx)
		}
		leased = true
		if reply.Till <= reply.Now {
			r.standFor(false)
		}
		// What Redis says and what is held may differ for a moment. If they still differ at the
		// next beat, a message was lost. A returned claim is compared too: the leader sends no
		// message when it has taken one back.
		if reply.Held != r.claims.count() || r.claims.returning() > 0 || !reply.Alive {
			mismatches++
			wait = min(wait, 200*time.Millisecond)
		} else {
			mismatches = 0
		}
		if mismatches >= 2 || !reply.Alive {
			if err := r.claims.reconcile(ctx); err != nil {
				r.log.Debug("comparing claims", "err", err)
			}
			mismatches = 0
		}
		r.rest(ctx, wait, places)
	}
}

// rest waits for the next beat. It comes sooner if the worker's other queues have taken so
// many places, or given back, that the leader should know.
func (r *Runner) rest(ctx context.Context, wait time.Duration, told int) {
	const least = 50 * time.Millisecond
	begin, timer := time.Now(), time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case <-r.places.changed:
		}
		if t := r.leading.Load(); t != nil && t.hungry.Load() {
			t.kick()
		}
		if left := r.places.left(); 4*max(left-told, told-left) > min(left, told) {
			pause(ctx, least-time.Since(begin))
			return
		}
	}
}

// register puts the queue into the list of all queues. That is for people: where it is not
// allowed nothing else fails.
func (r *Runner) register(ctx context.Context) {
	if err := r.store.Register(ctx); err != nil {
		r.log.Debug("putting the queue into the list of queues", "err", err)
	}
}

// goodDoubt is how well a worker should know Redis's clock.
const goodDoubt = 2 * time.Millisecond

// hurry is how many beats in a row follow each other closely for the sake of the clock: a
// worker that is far away knows it no better.
const hurry = 10

// learnTime reads Redis's clock, again and again while the replies take long: the leader
// gives jobs late, or none, to a worker that does not know the time.
func (r *Runner) learnTime(ctx context.Context) {
	for range 8 {
		if reading, err := r.store.Clock(ctx); err == nil {
			r.clock.observe(reading)
		}
		if _, doubt := r.clock.now(); doubt <= goodDoubt {
			return
		}
	}
}

// onItsWay is how long a claim may take from its commit to its worker.
const onItsWay = time.Second

// startedThrough returns an instant such that every claim of this worker with an earlier
// slot has started, or was taken back.
func (r *Runner) startedThrough(now int64) int64 {
	now -= onItsWay.Microseconds()
	r.claims.mu.Lock()
	defer r.claims.mu.Unlock()
	for claim, h := range r.claims.held {
		if h.cancel == nil && !h.over {
			if claim.Valid() {
				now = min(now, claim.Spent)
			}
		}
	}
	for claim := range r.claims.returned {
		if claim.Valid() {
			now = min(now, claim.Spent)
		}
	}
	return now
}

// takeHand takes what the leader puts into this worker's hand, until ctx ends. It waits anew, by
// another connection, where it has waited for too long or something was there that it has not been
// told: the connection may have died.
func (r *Runner) takeHand(ctx context.Context) {
	trouble := newTrouble(r.log, "waiting for jobs")
	for ctx.Err() == nil {
		taken := make(chan error, 1)
		go func() { taken <- r.takeNext(ctx) }()
		timer := time.NewTimer(handPatience + r.patience())
		select {
		case err := <-taken:
			if wait := trouble.after(err); wait > 0 && ctx.Err() == nil {
				// What was on its way may be lost: Redis knows what is ours.
				pause(ctx, wait)
				if err := r.claims.reconcile(ctx); err != nil {
					r.log.Debug("comparing claims", "err", err)
				}
			}
		case <-r.missed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// takeNext waits for the next message, and takes it.
func (r *Runner) takeNext(ctx context.Context) error {
	message, at, err := r.store.Hand(ctx, r.cfg.Worker, handPatience)
	if err != nil {
		return err
	}
	r.clock.reached(at)
	r.takeMessage(message)
	if at > 0 && r.now()-at > schedule.Grace {
		for r.catchUp(ctx) {
		}
	}
	return nil
}

// takeAtOnce is how many messages a worker takes together that is behind.
const takeAtOnce = 100

// catchUp takes all that waits in the hand, and reports whether there was something: a worker far away
// gets one message in a round trip, and the leader writes more of them.
func (r *Runner) catchUp(ctx context.Context) bool {
	rest, err := r.store.HandRest(ctx, r.cfg.Worker, takeAtOnce)
	if err != nil && ctx.Err() == nil { // it may have taken some
		r.log.Debug("catching up with the leader", "err", err)
		if err := r.claims.reconcile(ctx); err != nil {
			r.log.Debug("comparing claims", "err", err)
		}
	}
	for _, message := range rest {
		r.takeMessage(message)
	}
	return len(rest) > 0
}

func (r *Runner) takeMessage(message string) {
	switch message {
	case "", "!":
	case "!lead":
		r.standFor(true)
	default:
		r.takeWords(store.Words(message))
	}
}

// handPatience is how long one wait lasts: whole seconds, as Redis takes them.
const handPatience = 5 * time.Second

func (r *Runner) takeWords(words []string) {
	for ; len(words) >= wordsEach; words = words[wordsEach:] {
		switch words[0] {
		case wordJob, wordNext:
			claim, _ := envelope.ParseClaim(words[1]) // a malformed one is ended
			r.accept(given{claim: claim, job: words[2], awaited: words[0] == wordNext})
		case wordVice:
			r.deputy.Store(words[1] == r.cfg.Worker)
			r.standFor(false)
		}
	}
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// standFor lets this worker look whether it is to lead; at once if it was told to.
func (r *Runner) standFor(told bool) {
	select {
	case r.elect <- told:
	default:
	}
}

// The leader's lease, how often it is renewed, and how often a deputy looks after it. A
// worker that is alone has nobody who would wait for the end of its lease.
const (
	leaderLease = 500 * time.Millisecond
	renewEvery  = 150 * time.Millisecond
	aloneLease  = 2 * time.Second
	aloneRenews = 600 * time.Millisecond
	deputyLooks = 120 * time.Millisecond
	// sitOut is how long a leader that was deposed, or gave up, does not lead again while
	// somebody else could.
	sitOut = 5 * time.Second
)

// leaderLease returns how long this worker's lease as a leader is: what it reads before its
// first commit takes some round trips.
func (r *Runner) leaderLease() time.Duration {
	_, doubt := r.clock.now()
	return leaderLease + min(tripsToLead*doubt, longestTerm)
}

// tripsToLead is how many round trips a leader may take for a commit with all that it reads
// before, and longestTerm how much longer its lease is for that at most.
const (
	tripsToLead = 30
	longestTerm = 10 * time.Second
)

// lead leads the queue whenever it is this worker's turn, until ctx ends. It waits until the
// worker is in the fleet: nobody would reap jobs that it had given itself before.
func (r *Runner) lead(ctx context.Context) {
	trouble := newTrouble(r.log, "looking for a leader")
	told := true // nobody may lead when the first worker comes
	select {
	case <-r.listed:
	case <-ctx.Done():
	}
	for ctx.Err() == nil {
		out := time.Duration(r.demoted.Load()) - time.Since(r.begun)
		if (out > 0 || r.stopping()) && !told {
			pause(ctx, deputyLooks)
			// If nobody else leads either, a tired leader is better than none.
			meta, err := r.store.Meta(ctx)
			now, _ := r.clock.now()
			if err != nil || meta.Till+2*leaderLease.Microseconds() > now {
				continue
			}
		}
		t, err := r.store.Lead(ctx, r.cfg.Worker, r.leaderLease(), "")
		if wait := trouble.after(err); wait > 0 {
			pause(ctx, wait)
			continue
		}
		r.clock.observe(t.Reading)
		if t.Token != "" {
			r.serve(ctx, t)
			told = false
			continue
		}
		told = r.awaitTurn(ctx, t.Till)
	}
}

// awaitTurn waits until this worker should look again: a deputy soon after the leader's
// lease, others when they are told or their beats find no leader. While the lease that was
// found has not been renewed, all of them look when it ends: a leader that was killed may
// have had no deputy.
func (r *Runner) awaitTurn(ctx context.Context, found int64) (told bool) {
	for till := found; ; {
		now, _ := r.clock.now()
		left := micros(till - now)
		var timeout <-chan time.Time
		if deputy := r.deputy.Load(); deputy || till == found {
			wait := max(left, deputyLooks)
			if deputy {
				wait = max(min(left, deputyLooks), 0)
			}
			timeout = time.After(wait + time.Duration(rand.Int64N(int64(20*time.Millisecond))))
		}
		select {
		case <-ctx.Done():
			return false
		case told = <-r.elect:
			if told {
				return true
			}
		case <-timeout:
		}
		meta, err := r.store.Meta(ctx)
		if err != nil {
			continue
		}
		till = meta.Till
		if now, _ := r.clock.now(); till <= now {
			return false
		}
	}
}
