package runner

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// An inTray takes letters of this worker's own jobs for its own term.
type inTray struct {
	mu      sync.Mutex
	open    bool
	letters []store.Letter
}

// put puts a letter in, unless no term is open.
func (t *inTray) put(letter store.Letter) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open {
		t.letters = append(t.letters, letter)
	}
	return t.open
}

func (t *inTray) setOpen(open bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open = open
}

func (t *inTray) take() []store.Letter {
	t.mu.Lock()
	defer t.mu.Unlock()
	letters := t.letters
	t.letters = nil
	return letters
}

// The kinds of returned jobs: what the rules get back.
const (
	returnUnstarted = "unstarted" // everything: the job has not started, and others would not start there either
	returnLate      = "late"      // everything: the job has missed its slot
	returnPaused    = "paused"    // nothing
	returnRefunded  = "refunded"  // those of the user
)

// A request is a letter about a claim, which has its effect in a commit.
type request struct {
	letter string // its subject
	worker string
	claim  envelope.Claim
	cost   int
	env    *envelope.Envelope // of the claim; nil if it is gone
	job    string
	kind   string // of a return
	late   int64  // how long after its slot a late job came, in µs
	scope  string // that it pauses
	until  int64
	reason string        // why it pauses it
	own    *store.Letter // of this worker's own jobs: posted if this term does not settle it
}

// readRequest reads a letter about a claim.
func readRequest(l store.Letter) (q request, ok bool) {
	q.letter = l.Subject
	var words []string
	var claim string
	switch l.Subject {
	case store.MailReturn:
		if words = store.Words(l.Text); len(words) == 7 {
			ok = true
			q.worker, claim, q.kind, q.late = words[0], words[1], words[2], number(words[3])
			q.scope, q.until, q.reason = words[4], number(words[5]), words[6]
		}
	case store.MailRefund:
		if words = store.Words(l.Text); len(words) == 2 {
			ok = true
			claim, q.cost = words[0], max(1, int(number(words[1])))
		}
	}
	if !ok {
		return q, false
	}
	var err error
	q.claim, err = envelope.ParseClaim(claim)
	return q, err == nil
}

// open takes in what the term is told.
func (t *term) open(letters []store.Letter) {
	now, _ := t.r.clock.now()
	for _, l := range letters {
		switch l.Subject {
		case store.MailFold:
			if lane, err := envelope.ParseLane(l.Text); err == nil {
				t.sched.Look(lane.Tenant, lane.User, now)
			}
		case store.MailLater:
			t.ripeAt = min(t.ripeAt, number(l.Text))
		case store.MailFull:
			t.full[envelope.Unescape(l.Text)] = true
		case store.MailFinished:
			if claim, err := envelope.ParseClaim(l.Text); err == nil {
				t.sched.Ended(claim, now)
			}
		case store.MailWorkers:
			t.musterAt = 0
		case store.MailPlaces:
			worker, places, _ := strings.Cut(l.Text, " ")
			t.fleet.has(worker, int(number(places)))
		case store.MailPolicies, store.MailPaused, store.MailRepaired:
			t.stale = true
		case store.MailCancel:
			t.sched.Cancel(l.Text)
		case store.MailTenant:
			t.sched.ForgetLanes(envelope.Unescape(l.Text), now)
		case store.MailReturn, store.MailRefund:
			if q, ok := readRequest(l); ok {
				t.requests = append(t.requests, q)
			} else {
				t.r.log.Error("a malformed letter to the leader", "subject", l.Subject)
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
		t.sched.Look(lane.Tenant, lane.User, now)
		return
	}
	t.sched.Notice(lane, headOf(l.Text), now)
}

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
		if q.letter != store.MailRefund {
			refs, of = append(refs, store.ClaimRef{Worker: q.worker, Claim: q.claim}), append(of, i)
		}
	}
	if len(refs) == 0 {
		return nil
	}
	jobs, err := t.r.store.ClaimedJobs(ctx, refs)
	if err != nil {
		return err
	}
	seen := make(map[store.ClaimRef]bool)
	for k, i := range of {
		q := &t.requests[i]
		q.env, q.job = nil, jobs[k]
		if q.job == "" || seen[refs[k]] {
			q.job = ""
			continue
		}
		seen[refs[k]] = true
		if q.env, err = envelope.Open(q.job); q.env == nil {
			t.r.log.Error("a claimed job cannot be read", "claim", q.claim, "err", err)
		} else {
			q.cost = q.env.Cost
		}
	}
	return nil
}

// settle does in a commit what the requests ask for. Jobs that go back to the fronts of their lanes
// do so latest first.
func (t *term) settle(c *store.Commit, now int64) {
	slices.SortStableFunc(t.requests, func(a, b request) int { return cmp.Compare(b.claim.Spent, a.claim.Spent) })
	for i := range t.requests {
		q := &t.requests[i]
		switch {
		case q.letter == store.MailRefund:
			t.sched.Refund(q.claim, q.cost, false, now)
			t.sooner(c, q.claim.Lane, now)
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
	t.sched.End(claim, now)
}

// takeBack puts a job that a worker returns into its lane again.
func (t *term) takeBack(c *store.Commit, q *request, now int64) {
	t.endClaim(c, q.worker, q.claim, now)
	if q.kind == returnUnstarted {
		t.fleet.distrust(q.worker)
	}
	switch {
	case q.kind != returnLate:
		q.env.Late = 0
	case q.env.Late == 0:
		q.env.Late = 1 // once may be by chance
	default:
		q.env.Late = min(q.env.Late+q.late, farthest)
	}
	if q.kind == returnUnstarted || q.kind == returnLate {
		t.sched.Refund(q.claim, q.cost, true, now)
		t.sooner(c, q.claim.Lane, now)
		c.Count(q.claim.Lane.Tenant, "started", -1)
	} else {
		c.Count(q.claim.Lane.Tenant, "back", 1)
		q.env.Ready = now
	}
	if q.kind == returnRefunded {
		t.sched.Refund(q.claim, q.cost, false, now)
		t.sooner(c, q.claim.Lane, now)
	}
	if q.scope != "" {
		c.Pause(q.scope, q.until)
		if q.until > t.paused[q.scope] && q.reason != "" { // otherwise a longer pause has its own reason
			c.Explain(q.scope, q.until, q.reason)
		}
		t.paused[q.scope] = max(t.paused[q.scope], q.until)
		t.sched.Pause(q.scope, t.paused[q.scope], now)
	}
	t.requeue(q.claim.Lane, q.env)
}
