package dashboard

import (
	"context"
	"net/url"
	"time"

	"github.com/waterclock/waterclock/internal/human"
	"github.com/waterclock/waterclock/queue"
)

// A userView is the page of a user.
type userView struct {
	Tenant, User string
	Why          string
	Because      queue.Explanation
	Strips       []strip
	Lane         []queue.WaitingJob
	pager
	Pauses []queue.Pause
}

func readUser(ctx context.Context, w *watched, q url.Values) (any, error) {
	v := userView{Tenant: q.Get("t"), User: q.Get("u")}
	if v.Tenant == "" || v.User == "" {
		return nil, notFound("Which user, of which tenant?")
	}
	var err error
	if v.Because, err = w.inspector.Explain(ctx, v.Tenant, v.User); err != nil {
		return nil, err
	}
	v.Why = human.Why(v.Because, v.Tenant, v.User)
	recent, err := w.inspector.Recent(ctx, v.Tenant, v.User)
	if err != nil {
		return nil, err
	}
	policies, err := w.policies(ctx)
	if err != nil {
		return nil, err
	}
	policy, _ := policyOf(policies.Policies, v.Tenant)
	for _, rule := range policy.User {
		if s, ok := stripOf(rule, v.Because, recent); ok {
			v.Strips = append(v.Strips, s)
		}
	}
	from := number(q, "from")
	if v.Lane, err = w.inspector.Lane(ctx, v.Tenant, v.User, from, rowsOf); err != nil {
		return nil, err
	}
	v.pager = newPager(from, len(v.Lane), int64(from+len(v.Lane)) < v.Because.Waiting && len(v.Lane) > 0)
	v.Pauses, err = w.pausesOf(ctx, v.Tenant, v.User)
	return v, err
}

// A jobView is the page of a job with an ID of its own.
type jobView struct {
	ID    string
	Known bool
	Where string // and when it starts
	Why   string
	What  string // it is, if it does not wait
	Past  string // when it was offered
	Runs  []attemptView
	queue.JobState
}

// An attemptView is a row of a job's attempts.
type attemptView struct {
	Number                 int
	Started, Waited, Ended string
}

func readJob(ctx context.Context, w *watched, q url.Values) (any, error) {
	v := jobView{ID: q.Get("id")}
	if v.ID == "" {
		return v, nil
	}
	state, known, err := w.inspector.ExplainJob(ctx, v.ID)
	if err != nil {
		return nil, err
	}
	v.JobState, v.Known = state, known
	v.What, v.Past = human.WhatJob(state), human.Offered(state.History)
	for _, a := range state.History.Attempts {
		v.Runs = append(v.Runs, attemptView{a.Attempt, human.Instant(a.Started), human.WaitedFor(a), human.Ended(a)})
	}
	if state.State == "waiting" {
		v.Where = human.WhyJob(state, "It")
		v.Why = human.Why(state.Explanation, state.Tenant, state.User)
	}
	return v, nil
}

// Now is the instant that the page is about.
func (v userView) Now() time.Time { return v.Because.Now }
