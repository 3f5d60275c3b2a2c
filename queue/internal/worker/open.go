package worker

import (
	"context"
	"errors"
	"fmt"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// open reads what was claimed. It returns false if nothing is to start: a malformed claim is ended, a job that cannot
// be read is dead, and what current does not let start goes no further.
func (w *Worker) open(g Given) (*job, bool) {
	j := &job{Given: g}
	if !g.Claim.Valid() {
		w.Log.Error("dropped a malformed claim", "claim", g.Claim)
		w.Claims.done(End{Claim: g.Claim})
		return nil, false
	}
	if j.env = g.Env; j.env == nil && g.Job != "" {
		if j.env = w.read(j, g.Job); j.env == nil {
			return nil, false
		}
	}
	if j.env == nil || j.env.CollapseKey != "" || len(j.env.Members) > 0 {
		if !w.current(j) {
			return nil, false
		}
	}
	if len(j.env.Members) > 0 {
		return j, w.settle(j) && w.readPayloads(j)
	}
	if j.env.Spilled == "" {
		return j, true
	}
	return j, w.readPayload(j)
}

// read opens a job. One that cannot be read is dead.
func (w *Worker) read(j *job, text string) *envelope.Envelope {
	env, err := envelope.Open(text)
	if err != nil {
		w.bury(j, text, fmt.Errorf("the job cannot be read: %w", err))
	}
	return env
}

// The leader decides about what it has read. A commit that claims the job under a collapse key, or a digest, takes what is there by
// then:
//
//  1. A job was replaced before the commit. Both have the same key, and may cost different things, or be subject to different limits
//     by name. The rules have counted the first.
//  2. A digest has got members. The commit checks that they cost the same (store.Commit.ClaimDigest).
//
// So the worker reads what it has, and compares.

// current puts what was claimed in the place of what the leader has decided about. It reports whether that may start: what
// Redis does not have any more is let go of; what was cancelled, or what limits count differently, goes back to the leader.
func (w *Worker) current(j *job) bool {
	var text string
	ok := w.Retry("reading jobs", func(ctx context.Context) error {
		jobs, err := w.Store.ClaimedJobs(ctx, []store.ClaimRef{{Worker: w.Name, Claim: j.Claim}})
		if err == nil {
			text = jobs[0]
		}
		return err
	})
	if !ok || text == "" { // it is somebody else's by now
		w.Claims.drop(j.Claim)
		return false
	}
	decided := j.env
	j.Job, j.env = text, nil
	if j.env = w.read(j, text); j.env == nil {
		return false
	}
	if j.env.Stamp != j.Claim.Stamp { // it was replaced
		if decided != nil && decided.Stamp != j.Claim.Stamp {
			decided = nil // the claim came by a comparison, which does not know what was decided
		}
		if decided == nil || !w.countedAlike(j.Claim.Lane, decided, j.env) {
			w.giveBackChanged(j.Claim, decided)
			return false
		}
	}
	if j.env.ID != "" && w.wasCancelled(j.env.ID) {
		w.giveBackChanged(j.Claim, decided)
		return false
	}
	return true
}

// readPayload reads a payload that is kept apart, and reports whether it is there. A job whose
// payload is gone is dead.
func (w *Worker) readPayload(j *job) bool {
	missing := false
	ok := w.Retry("reading payloads", func(ctx context.Context) error {
		payloads, err := w.Store.Payloads(ctx, []string{j.env.Spilled})
		if err != nil {
			return err
		}
		j.env.Payload, missing = payloads[0], payloads[0] == ""
		return nil
	})
	if missing {
		w.bury(j, j.Job, errors.New("its payload is gone from Redis"))
	}
	return ok && !missing
}

// wasCancelled reports whether a job with a collapse key and an ID was cancelled. The commit that claimed it could not
// check that, since the job may be another one than the leader knew. If it was not cancelled its ID says from now on
// that it has started, and it cannot be cancelled any more.
func (w *Worker) wasCancelled(id string) (cancelled bool) {
	w.Retry("noting a start", func(ctx context.Context) (err error) {
		cancelled, err = w.Store.Started(ctx, id)
		return err
	})
	return cancelled
}
