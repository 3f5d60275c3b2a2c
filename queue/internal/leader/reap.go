package leader

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/retry"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// The claims of a worker whose lease has expired are taken back in steps, so that no commit is long
// and no round waits for reading them:
//
//  1. Each muster reads the leases ([fleet.died]). One worker is reaped at a time.
//  2. The names of its claims are read beside the rounds, in short steps ([term.inventory]).
//  3. Each round then takes back up to [reapBatch] of them, lane by lane, of each the latest slots first, each to
//     the front of the lane: so its jobs end up in their order ([term.reap]). While a part of a lane is still to come,
//     rounds start nothing ([fleet.halfway]): it would overtake what comes back in front of it.
//  4. Each of these commits checks that the lease has still expired ([store.Commit.Expired]). A worker
//     that comes back renews its lease, and makes the commit fail: its jobs stay its own. One that comes
//     back between two of them finds that some of its claims are gone, and does not start them.
//  5. With the last claim the worker leaves the fleet, in the same commit: a beat after that begins
//     anew.
//
// After an outage of Redis all leases may have expired with nobody at fault: then nothing is taken back
// for one more lease ([store.Reapable.Amnesty]).

// A reaping is the claims that are taken back from one worker. Until it is ready the inventory is under way, and only
// the worker's name is known.
type reaping struct {
	worker  string
	ready   bool
	claims  []envelope.Claim // by lanes, of each the latest slots last: they are taken back from the end
	halfway bool             // the last commit has taken back a part of a lane
	all     int              // how many claims there were, for the log
	started int64            // all claims with an earlier slot had started
}

// reapBatch is how many claims one commit takes back.
const reapBatch = 100

// died notes whose leases have expired, as a muster has read them. A reaping that is under way goes on, if its worker
// is still among them.
func (f *fleet) died(workers []string) {
	if f.reaping != nil && !slices.Contains(workers, f.reaping.worker) {
		f.reaping = nil // it lives again
	}
	if f.dead = workers; f.reaping != nil {
		i := slices.Index(workers, f.reaping.worker)
		workers[0], workers[i] = workers[i], workers[0]
	}
}

// mourns reports whether there is something to take back from a dead worker now.
func (f *fleet) mourns() bool {
	return len(f.dead) > 0 && (f.reaping == nil || f.reaping.ready)
}

// halfway reports whether a part of what a dead worker holds of a lane has been taken back, and the jobs before it have
// not.
func (f *fleet) halfway() bool { return f.reaping != nil && f.reaping.halfway }

// reap takes back some of the claims of a worker whose lease has expired, with the commit c.
//
// It does not know whether the commit of its last call has happened. So it reads twice as many claims as a commit takes
// back, from the end: those that a commit has taken back are gone, and the others are there still. In either case the
// last reapBatch of those that are there are the next ones, in the same order.
func (t *term) reap(ctx context.Context, c *store.Commit, now int64) error {
	if !t.fleet.mourns() {
		return nil
	}
	r := t.fleet.reaping
	if r == nil {
		r = &reaping{worker: t.fleet.dead[0]}
		t.fleet.reaping = r
		t.workers.Go(func() { t.inventory(t.ctx, r) })
		return nil
	}
	batch := r.claims[max(0, len(r.claims)-2*reapBatch):]
	found, err := queryOf(ctx, t, slices.Clone(batch), func(ctx context.Context, claims []envelope.Claim) (store.Reapable, error) {
		return t.w.Store.Reapable(ctx, r.worker, claims)
	})
	if err != nil {
		return err
	}
	if found.Amnesty(now, t.w.Lease) {
		t.fleet.dead, t.fleet.reaping = nil, nil // until the next muster
		return nil
	}
	// Those that the last commit has taken back are gone. If Redis has refused it, they are not.
	claims := found.Claims[max(0, len(found.Claims)-reapBatch):]
	r.claims = r.claims[:len(r.claims)-len(batch)]
	for _, claim := range found.Claims {
		r.claims = append(r.claims, claim.Claim)
	}
	next := len(r.claims) - len(claims) - 1
	r.halfway = len(claims) > 0 && next >= 0 && r.claims[next].Lane == claims[0].Lane
	c.Expired(r.worker, t.w.Lease)
	for _, claim := range slices.Backward(claims) {
		t.reapClaim(c, r.worker, claim, r.started, now)
	}
	switch {
	case found.Held == len(claims):
		c.Forget(r.worker)
		t.fleet.dead, t.fleet.reaping = t.fleet.dead[1:], nil
		if r.all > 0 {
			t.w.Log.Warn("took back the jobs of a worker that died or lost Redis", "worker", r.worker, "jobs", r.all)
		}
	case len(claims) == 0:
		t.fleet.reaping = nil // it was given more meanwhile
	}
	return nil
}

// inventory reads the names of a dead worker's claims, and tells the rounds. It tries until Redis answers.
func (t *term) inventory(ctx context.Context, r *reaping) {
	trouble := retry.NewTrouble(t.w.Log, "reading the jobs of a lost worker")
	var claims []envelope.Claim
	var started int64
	for {
		var err error
		if claims, started, err = t.claimsByLane(ctx, r.worker); ctx.Err() != nil {
			return
		}
		wait := trouble.After(err)
		if wait == 0 {
			break
		}
		retry.Pause(ctx, wait)
	}
	t.report(ctx, func(int64) { r.claims, r.all, r.started, r.ready = claims, len(claims), started, true })
}

// claimsByLane returns the claims of a worker by their lanes, of each the latest slots last, and up to when all have
// started. It takes many short steps.
func (t *term) claimsByLane(ctx context.Context, worker string) (claims []envelope.Claim, started int64, err error) {
	records, _, err := queryBoth(ctx, t, []string{worker}, t.w.Store.Records)
	if err != nil {
		return nil, 0, err
	}
	for place := (store.ClaimScan{Worker: worker}); !place.Done; {
		began := time.Now()
		found, next, err := queryBoth(ctx, t, place, t.w.Store.ScanClaims)
		if err != nil {
			return nil, 0, err
		}
		claims, place = append(claims, found...), next
		if !place.Done {
			retry.Pause(ctx, time.Since(began)) // Redis has others to serve
		}
	}
	slices.SortFunc(claims, byLane)
	return slices.Compact(claims), records[0].Started, nil
}

// byLane orders claims by their lanes, and those of a lane by their slots.
func byLane(a, b envelope.Claim) int {
	return cmp.Or(envelope.CompareLanes(a.Lane, b.Lane), cmp.Compare(a.Spent, b.Spent), strings.Compare(a.Stamp, b.Stamp))
}

// leaseExpired is the last error of a job whose worker was lost.
const leaseExpired = "the lease expired: its worker died or lost Redis"

// reapClaim takes one claim back. If its handler had started, that was an attempt. If nobody knows, it
// was none the first time, and one each further time: a job that kills its workers ends.
func (t *term) reapClaim(c *store.Commit, dead string, claim store.Claimed, started, now int64) {
	lane := claim.Lane
	t.endClaim(c, dead, claim.Claim, now)
	if !claim.Valid() {
		t.w.Log.Error("a malformed claim of a lost worker", "claim", claim.Claim)
		return
	}
	env, err := envelope.Open(claim.Job)
	if env == nil || err != nil && !errors.Is(err, envelope.ErrNewer) {
		c.Bury(lane, claim.Job, "the job cannot be read: "+err.Error(), now)
		return
	}
	since := env.Since()
	env.Ready = now
	if claim.Spent >= started && env.Lost == 0 {
		env.Lost++
		c.Count(lane.Tenant, "back", 1)
		t.comebacks = append(t.comebacks, comeback{lane: lane, env: env, front: true, slot: claim.Spent, since: since})
		return
	}
	env.Failures++
	c.Count(lane.Tenant, "failed", 1)
	if env.Failures >= env.MaxAttempts {
		bury(c, lane, env, leaseExpired, now)
		return
	}
	c.Count(lane.Tenant, "back", 1)
	t.comebacks = append(t.comebacks, comeback{lane: lane, env: env, front: true, slot: claim.Spent})
}
