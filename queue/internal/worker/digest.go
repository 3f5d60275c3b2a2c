package worker

import (
	"context"
	"errors"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// settle brings the members of a digest to the point at which it can start: from then on none of them can be cancelled, and
// those that were, or may not start so late, have left it. It reports false if nothing is to start here. A digest of which none is
// left goes back: the leader drops it, and gives its slot back.
func (w *Worker) settle(j *job) bool {
	var cancelled map[string]bool
	if ids := j.env.IDs(); len(ids) > 0 && !w.Retry("noting starts", func(ctx context.Context) (err error) {
		cancelled, err = w.Store.StartMembers(ctx, ids)
		return err
	}) {
		w.Claims.drop(j.Claim)
		return false
	}
	reasons := w.reasons(j, cancelled)
	switch len(reasons) {
	case 0:
		return true
	case len(j.env.Members):
		w.giveBackChanged(j.Claim, nil)
		return false
	}
	var dropped []store.DroppedMember
	left := j.env.Without(func(m *envelope.Envelope) bool {
		if reasons[m] != "" {
			dropped = append(dropped, store.DroppedMember{Job: m, Reason: reasons[m]})
		}
		return reasons[m] != ""
	})
	now, _ := w.Clock.Now()
	held, ref := false, store.ClaimRef{Worker: w.Name, Claim: j.Claim}
	if !w.Retry("dropping members of a digest", func(ctx context.Context) (err error) {
		held, err = w.Store.DropMembers(ctx, ref, j.Job, left.String(), dropped, now)
		return err
	}) || !held {
		w.Claims.drop(j.Claim)
		return false
	}
	for _, m := range dropped {
		w.Past.Dropped(m.Job, now, m.Reason, "")
	}
	j.env, j.Job = left, left.String()
	return true
}

// reasons returns why members never run, for those that do not.
func (w *Worker) reasons(j *job, cancelled map[string]bool) map[*envelope.Envelope]string {
	policies, err := w.Policies.compile(w.cfg.Policies, w.Now())
	if err != nil {
		policies = nil // the leader has judged by those in force
	}
	policy, slot, of := policies.Of(j.Claim.Lane.Tenant), j.Claim.Slot, make(map[*envelope.Envelope]string)
	for _, m := range j.env.Members {
		latest := m.Deadline
		if !policies.Closes() { // otherwise the leader knows how long a member may wait: it knows the user's clock
			latest = policy.LatestOf(j.env, m, nil)
		}
		switch {
		case cancelled[m.ID]:
			of[m] = schedule.Cancelled
		case latest > 0 && slot > latest || m.Until > 0 && slot >= m.Until:
			of[m] = schedule.Expired
		}
	}
	return of
}

// readPayloads reads the payloads of members that are kept apart, and reports whether all are there.
func (w *Worker) readPayloads(j *job) bool {
	var names []string
	var of []*envelope.Envelope
	for _, m := range j.env.Members {
		if m.Spilled != "" {
			names, of = append(names, m.Spilled), append(of, m)
		}
	}
	if len(names) == 0 {
		return true
	}
	missing := false
	ok := w.Retry("reading payloads", func(ctx context.Context) error {
		payloads, err := w.Store.Payloads(ctx, names)
		if err != nil {
			return err
		}
		missing = false
		for i, payload := range payloads {
			of[i].Payload, missing = payload, missing || payload == ""
		}
		return nil
	})
	if missing {
		w.bury(j, j.Job, errors.New("a payload of it is gone from Redis"))
	}
	j.env.Payload = j.env.Members[len(j.env.Members)-1].Payload
	return ok && !missing
}
