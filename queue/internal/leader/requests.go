package leader

import (
	"context"
	"slices"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A worker that returns a job, or gives the cost of one back to its user, asks the leader for it by a notice. The
// effect needs more than a look: the claim ends, the job stands in its lane again, rules get back what they had
// counted. All of that is one commit, so nobody can see half of it. It goes this way:
//
//	open      the notice is read and kept (notices.go)
//	ask       what the request needs is read: its job, and what the rules concerned remember
//	settle    the commit of the prelude ends the claim and requeues the job
//
// One commit takes so many jobs back ([mostRequests]): all jobs of a worker may come back at one instant, and the others
// do not wait for all of them.
//
// What the rules get back depends on why the job comes back (the kinds of [store.Return]):
//
//	unstarted   everything: the worker stops, or does not know the time. It gets no more jobs for a while
//	late        everything: the job has missed its slot. When it is late again, its next slot lies further ahead
//	paused      nothing: the handler has run, and asks for a pause
//	refunded    what its user's rules counted: the handler says that the user has seen nothing
//
// A request may be read twice: by the next leader, or since the worker has written it again. A return is void then: the
// commit has ended its claim, and whoever reads it again finds no such claim, and drops it. Nothing voids a refund, whose
// claim was over before. So a commit that settles refunds settles all requests that were opened, and notes the newest
// notice ([term.launch]): the next leader does not read these again.

// A request is a notice about a claim, which has its effect in a commit.
type request struct {
	store.Return                    // of a job; of a refund only the claim counts
	refund       bool               // it gives back what the user has not seen
	env          *envelope.Envelope // of the claim; nil if it is gone. Of a refund it is what limits count
	own          *store.Notice      // of this worker's own jobs: posted if this term does not settle it
}

// counted returns the job that the rules have counted for the claim; nil if that is not known: a job under a collapse key was
// replaced, and the worker had not compared the two. Then the rules get nothing back.
func (q *request) counted() *envelope.Envelope {
	switch {
	case q.Counted != nil:
		return q.Counted
	case q.env != nil && q.env.Stamp != q.Claim.Stamp && (q.Kind == store.ReturnUnstarted || q.Kind == store.ReturnChanged):
		return nil
	}
	return q.env
}

// readRequest reads a notice about a claim.
func readRequest(l store.Notice) (q request, ok bool) {
	if l.Subject == store.NoticeRefund {
		refund, ok := store.ParseRefund(l.Text)
		return request{Return: store.Return{Claim: refund.Claim}, refund: true, env: refund.Job}, ok
	}
	q.Return, ok = store.ParseReturn(l.Text)
	return q, ok
}

// mostRequests is how many jobs one commit takes back at most. While so many requests wait, no more notices are opened: so
// the refunds of a commit are that many, and those of one reading, at most.
const mostRequests = 200

// inOrder sorts requests as they are settled: refunds last.
func inOrder(requests []request) {
	slices.SortStableFunc(requests, func(a, b request) int {
		if a.refund == b.refund {
			return 0
		}
		if a.refund {
			return 1
		}
		return -1
	})
}

// first returns the requests that the next commit settles, of those that are in order: the first returns, or all requests
// if it takes the last returns.
func (t *term) first() []request {
	if len(t.requests) > mostRequests && !t.requests[mostRequests].refund {
		return t.requests[:mostRequests]
	}
	return t.requests
}

// ask reads what the first requests need: the jobs of their claims, and what the rules of their users and tenants
// remember, since a refund changes that. It reports whether all of it is known. If it is not, the notices
// wait for the next round.
func (t *term) ask(ctx context.Context) (known bool, err error) {
	if len(t.requests) == 0 {
		return true, nil
	}
	inOrder(t.requests)
	if err := t.prepare(ctx); err != nil {
		return false, err
	}
	if t.knows() {
		return true, nil
	}
	now := t.w.Now()
	b := t.newCommit(now)
	b.mends, b.commit = true, t.sched.Amend(now)
	b.write(now)
	t.launch(ctx, b)
	if err := t.landAll(ctx); err != nil {
		return false, err
	}
	return t.knows(), nil // the commit may have been refused
}

// prepare reads the jobs that the first requests are about. Of two returns of one claim the first gets the job: the
// other one has no effect.
func (t *term) prepare(ctx context.Context) error {
	var refs []store.ClaimRef
	var of []int
	for i, q := range t.first() {
		if !q.refund {
			refs, of = append(refs, store.ClaimRef{Worker: q.Worker, Claim: q.Claim}), append(of, i)
		}
	}
	if len(refs) == 0 {
		return nil
	}
	jobs, err := queryOf(ctx, t, refs, t.w.Store.ClaimedJobs)
	if err != nil {
		return err
	}
	seen := make(map[store.ClaimRef]bool)
	for k, i := range of {
		q := &t.requests[i]
		q.env = nil
		if jobs[k] == "" || seen[refs[k]] {
			continue
		}
		seen[refs[k]] = true
		if q.env, err = envelope.Open(jobs[k]); q.env == nil {
			t.w.Log.Error("a claimed job cannot be read", "claim", q.Claim, "err", err)
		}
	}
	return nil
}

// knows reports whether the scheduler knows what the rules remember that the first requests are about. What it does not
// know it asks for, with the next commit.
func (t *term) knows() bool {
	known := true
	for _, q := range t.first() {
		known = t.sched.Knows(q.Claim.Lane, q.env) && (q.Counted == nil || t.sched.Knows(q.Claim.Lane, q.Counted)) && known
	}
	return known
}

// settle does in a commit what the first requests ask for. The slots that are given back are those of jobs that
// never started, or of which the user has seen nothing.
func (t *term) settle(c *store.Commit, now int64) {
	for i := range t.first() {
		q := &t.requests[i]
		switch {
		case q.refund:
			t.sched.Step(now, schedule.Refunded{Claim: q.Claim, Env: q.env})
			t.sooner(c, q.Claim.Lane, now)
		case q.env != nil:
			t.takeBack(c, q, now)
		}
	}
}

// takeBack puts a job that a worker returns into its lane again. One that has not started comes back with Late 1: if it
// was late, that may have been by chance. From the second time on its next slot lies further ahead by what it was
// late.
func (t *term) takeBack(c *store.Commit, q *request, now int64) {
	t.endClaim(c, q.Worker, q.Claim, now)
	if q.Kind == store.ReturnUnstarted {
		t.fleet.distrust(q.Worker)
	}
	unstarted := q.Kind == store.ReturnUnstarted || q.Kind == store.ReturnLate || q.Kind == store.ReturnChanged
	switch {
	case q.Kind == store.ReturnChanged:
		q.env.Late = 0
	case q.Kind == store.ReturnLate && q.env.Late > 0:
		q.env.Late = min(q.env.Late+q.Late, farthest)
	case unstarted:
		q.env.Late = 1
	default:
		q.env.Late = 0
	}
	if unstarted {
		if counted := q.counted(); counted != nil {
			t.sched.Step(now, schedule.Refunded{Claim: q.Claim, Env: counted, All: true})
			t.sooner(c, q.Claim.Lane, now)
		}
		c.Count(q.Claim.Lane.Tenant, "started", -1)
	} else {
		c.Count(q.Claim.Lane.Tenant, "back", 1)
		q.env.Ready = now
	}
	if q.Kind == store.ReturnSentOn {
		t.fleet.sitsOut(q.Worker, q.Until)
	}
	q.env.SentOn = q.Kind == store.ReturnSentOn || unstarted && q.env.SentOn
	if q.Kind == store.ReturnRefunded || q.Kind == store.ReturnSentOn {
		t.sched.Step(now, schedule.Refunded{Claim: q.Claim, Env: q.env})
		t.sooner(c, q.Claim.Lane, now)
	}
	if q.Scope != "" {
		t.pause(c, q, q.Scope, now)
		if !t.counts(q.Scope, q) {
			t.pause(c, q, envelope.UserScope(q.Claim.Lane.Tenant, q.Claim.Lane.User), now)
		}
	}
	back := comeback{lane: q.Claim.Lane, env: q.env, front: true, slot: q.Claim.Spent}
	if unstarted && q.env.Late == 1 { // one that is late again and again does not keep the others waiting
		back.since = q.env.Since()
	}
	t.comebacks = append(t.comebacks, back)
}

// counts reports whether a scope is that of a limit which counts the job of a return. Otherwise a pause of the scope would
// let the job start again at once.
func (t *term) counts(scope string, q *request) bool {
	return slices.ContainsFunc(t.sched.Policies().Uses(q.Claim.Lane, q.env), func(use schedule.Use) bool { return use.Scope == scope })
}

// pause pauses a scope for as long as a return asks.
func (t *term) pause(c *store.Commit, q *request, scope string, now int64) {
	c.Pause(scope, q.Until)
	if q.Until > t.paused[scope] && q.Reason != "" { // otherwise a longer pause has its own reason
		c.Explain(scope, q.Until, q.Reason)
	}
	t.paused[scope] = max(t.paused[scope], q.Until)
	t.sched.Step(now, schedule.Paused{Scope: scope, Until: t.paused[scope]})
}

// endClaim takes a claim from a worker with a commit. The scheduler counts it as ended from now on; if the commit is
// refused the claim is counted again.
func (t *term) endClaim(c *store.Commit, worker string, claim envelope.Claim, now int64) {
	c.EndClaim(worker, claim)
	t.sched.Step(now, schedule.TakenBack{Claim: claim})
}
