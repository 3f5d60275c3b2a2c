package leader

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// The leader is told things by letters in a stream, the mail: clients write that a lane has its first job,
// workers that claims have ended or come back, operators that something has changed. This worker's own jobs write
// directly ([worker.Tray]). A goroutine reads the stream ([term.readMail]); the rounds take in what it has read.
//
// A letter is only a hint. What it says is in Redis before it is written, so that a letter that is read twice, or
// late, or by the next leader does no harm, and one that is lost delays something until the next look:
//
//   - Most letters make the scheduler look again (open).
//   - Requests are about one claim, and have their effect with a commit (settle). The commit ends the claim
//     and so makes the request void: whoever reads it again finds no such claim.
//   - The commit that has the effects of all letters up to one notes that one's ID. A new leader reads on from
//     there ([store.Fence.Mail]).

// A request is a letter about a claim, which has its effect in a commit.
type request struct {
	store.Return      // of a job; of a refund only the claim counts
	refund       bool // it gives back what the user has not seen
	cost         int
	env          *envelope.Envelope // of the claim; nil if it is gone
	own          *store.Letter      // of this worker's own jobs: posted if this term does not settle it
}

// readRequest reads a letter about a claim.
func readRequest(l store.Letter) (q request, ok bool) {
	if l.Subject == store.MailRefund {
		refund, ok := store.ParseRefund(l.Text)
		return request{Return: store.Return{Claim: refund.Claim}, refund: true, cost: refund.Cost}, ok
	}
	q.Return, ok = store.ParseReturn(l.Text)
	return q, ok
}

// open takes in what the term is told. Some letters set an instant at which a round looks (ripeAt, musterAt),
// some a flag (stale, full): what they ask for is done in the next prelude.
func (t *term) open(letters []store.Letter) {
	now, _ := t.w.Clock.Now()
	for _, l := range letters {
		switch l.Subject {
		case store.MailFold:
			if lane, err := envelope.ParseLane(l.Text); err == nil {
				t.sched.Step(now, schedule.Changed{Tenant: lane.Tenant, User: lane.User})
			}
		case store.MailLater:
			t.ripeAt = min(t.ripeAt, number(l.Text))
		case store.MailFull:
			t.full[envelope.Unescape(l.Text)] = true
		case store.MailFinished:
			t.sched.Step(now, schedule.Ended(store.ParseFinished(l.Text)))
		case store.MailWorkers:
			t.musterAt = 0
		case store.MailPlaces:
			worker, places, _ := strings.Cut(l.Text, " ")
			t.fleet.has(worker, int(number(places)))
		case store.MailPolicies, store.MailPaused, store.MailRepaired:
			t.stale = true
		case store.MailCancel:
			t.sched.Step(now, schedule.IDCancelled{ID: l.Text})
		case store.MailTenant:
			t.sched.Step(now, schedule.Replaced{Tenant: envelope.Unescape(l.Text)})
		case store.MailReturn, store.MailRefund:
			if q, ok := readRequest(l); ok {
				t.requests = append(t.requests, q)
			} else {
				t.w.Log.Error("a malformed letter to the leader", "subject", l.Subject)
			}
		default:
			t.notice(l, now)
		}
	}
}

// notice takes in that a lane has got its first job.
func (t *term) notice(l store.Letter, now int64) {
	lane, err := envelope.ParseLane(l.Subject)
	if err != nil {
		return
	}
	if l.Text != "" && l.Text[0] == '=' { // the job is under its collapse key
		t.sched.Step(now, schedule.Changed{Tenant: lane.Tenant, User: lane.User})
		return
	}
	t.sched.Step(now, schedule.First{Lane: lane, Head: headOf(l.Text)})
}

// headOf reads a job as it stands in its lane.
func headOf(job string) schedule.Head {
	env, err := envelope.Open(job)
	if err != nil {
		return schedule.Head{Entry: job, Job: job, Err: err}
	}
	return schedule.Head{Entry: job, Job: job, Env: env}
}

// prepare reads the jobs that the requests are about.
func (t *term) prepare(ctx context.Context) error {
	var refs []store.ClaimRef
	var of []int
	for i, q := range t.requests {
		if !q.refund {
			refs, of = append(refs, store.ClaimRef{Worker: q.Worker, Claim: q.Claim}), append(of, i)
		}
	}
	if len(refs) == 0 {
		return nil
	}
	jobs, err := t.w.Store.ClaimedJobs(ctx, refs)
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
		} else {
			q.cost = q.env.Cost
		}
	}
	return nil
}

// settle does in a commit what the requests ask for. The slots that are given back are those of jobs that
// never started, or of which the user has seen nothing. Jobs that go back to the fronts of their lanes
// do so latest first.
func (t *term) settle(c *store.Commit, now int64) {
	slices.SortStableFunc(t.requests, func(a, b request) int { return cmp.Compare(b.Claim.Spent, a.Claim.Spent) })
	for i := range t.requests {
		q := &t.requests[i]
		switch {
		case q.refund:
			t.sched.Step(now, schedule.Refunded{Claim: q.Claim, Cost: q.cost})
			t.sooner(c, q.Claim.Lane, now)
		case q.env != nil:
			t.takeBack(c, q, now)
		}
	}
}

// sooner lowers the bounds that Redis has of a user's lanes.
func (t *term) sooner(c *store.Commit, lane envelope.Lane, now int64) {
	for p := range 3 {
		lane.Priority = p
		c.Sooner(lane, now)
	}
}

// endClaim takes a claim from a worker.
func (t *term) endClaim(c *store.Commit, worker string, claim envelope.Claim, now int64) {
	c.EndClaim(worker, claim)
	t.sched.Step(now, schedule.TakenBack{Claim: claim})
}

// takeBack puts a job that a worker returns into its lane again. What the rules get back depends on why it comes
// (the kinds of [store.Return]). A job that was late once comes back with Late 1: it may have been by
// chance. From the second time on its next slot lies further ahead by what it was late.
func (t *term) takeBack(c *store.Commit, q *request, now int64) {
	t.endClaim(c, q.Worker, q.Claim, now)
	if q.Kind == store.ReturnUnstarted {
		t.fleet.distrust(q.Worker)
	}
	switch {
	case q.Kind != store.ReturnLate:
		q.env.Late = 0
	case q.env.Late == 0:
		q.env.Late = 1 // once may be by chance
	default:
		q.env.Late = min(q.env.Late+q.Late, farthest)
	}
	if q.Kind == store.ReturnUnstarted || q.Kind == store.ReturnLate {
		t.sched.Step(now, schedule.Refunded{Claim: q.Claim, Cost: q.cost, All: true})
		t.sooner(c, q.Claim.Lane, now)
		c.Count(q.Claim.Lane.Tenant, "started", -1)
	} else {
		c.Count(q.Claim.Lane.Tenant, "back", 1)
		q.env.Ready = now
	}
	if q.Kind == store.ReturnRefunded {
		t.sched.Step(now, schedule.Refunded{Claim: q.Claim, Cost: q.cost})
		t.sooner(c, q.Claim.Lane, now)
	}
	if q.Scope != "" {
		c.Pause(q.Scope, q.Until)
		if q.Until > t.paused[q.Scope] && q.Reason != "" { // otherwise a longer pause has its own reason
			c.Explain(q.Scope, q.Until, q.Reason)
		}
		t.paused[q.Scope] = max(t.paused[q.Scope], q.Until)
		t.sched.Step(now, schedule.Paused{Scope: q.Scope, Until: t.paused[q.Scope]})
	}
	t.requeue(q.Claim.Lane, q.env)
}

// number reads what a letter says; what is malformed is 0.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
