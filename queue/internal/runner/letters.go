package runner

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// An answer is another slot for a late job, under a new claim; no claim if the job is in
// its lane again.
type answer struct {
	claim        string
	slot, spread int64
}

// An inTray takes letters of this worker's own jobs for its own term, and answers for its
// jobs.
type inTray struct {
	mu       sync.Mutex
	open     bool
	letters  []store.Letter
	awaiting map[string]question // by the jobs, see [envelope.ClaimedJob]
}

// A question is a late job's that waits for its answer.
type question struct {
	claim  string
	answer chan answer
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

func (t *inTray) await(claim string) chan answer {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.awaiting == nil {
		t.awaiting = make(map[string]question)
	}
	c := make(chan answer, 1)
	t.awaiting[envelope.ClaimedJob(claim)] = question{claim, c}
	return c
}

// forget ends the wait for an answer; the claim has its new name by then.
func (t *inTray) forget(claim string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.awaiting, envelope.ClaimedJob(claim))
}

// answer reports whether a job waits for the answer, and hands it over.
func (t *inTray) answer(claim string, a answer) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.awaiting[envelope.ClaimedJob(claim)]
	if q.claim != claim {
		return false
	}
	q.take(a)
	return true
}

// found takes a claim that was found in Redis as the answer to a late job, if it is one: it
// came before the answer itself. Otherwise the job would start twice.
func (t *inTray) found(g given) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	q, waits := t.awaiting[envelope.ClaimedJob(g.claim)]
	if !waits || q.claim == g.claim {
		return false
	}
	a := answer{g.claim, g.slot, g.spread}
	if a.slot == 0 {
		_, a.slot, _, _ = envelope.ParseClaim(g.claim)
	}
	q.take(a)
	return true
}

// asks reports whether a claim waits for an answer: its name may be gone from Redis.
func (t *inTray) asks(claim string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.awaiting[envelope.ClaimedJob(claim)].claim == claim
}

// take takes the first answer; others repeat it.
func (q question) take(a answer) {
	select {
	case q.answer <- a:
	default:
	}
}

// The kinds of returned jobs: what the rules get back.
const (
	returnUnstarted = "unstarted" // everything: the job has not started
	returnPaused    = "paused"    // nothing
	returnRefunded  = "refunded"  // those of the user
)

// A request is a letter about a claim, which has its effect in a commit.
type request struct {
	letter string // its subject
	worker string
	claim  string
	lane   envelope.Lane
	spent  int64
	cost   int
	env    *envelope.Envelope // of the claim; nil if it is gone
	job    string
	doubt  int64  // of a late job's worker
	ahead  int64  // how far ahead its slot has to lie for the answer to come in time
	kind   string // of a return
	scope  string // that it pauses
	until  int64
	reason string        // why it pauses it
	own    *store.Letter // of this worker's own jobs: posted if this term does not settle it
}

// readRequest reads a letter about a claim.
func readRequest(l store.Letter) (q request, ok bool) {
	q.letter = l.Subject
	var words []string
	switch l.Subject {
	case store.MailLate:
		if words = store.Words(l.Text); len(words) == 4 {
			ok = true
			q.worker, q.claim, q.doubt, q.ahead = words[0], words[1], number(words[2]), number(words[3])
		}
	case store.MailReturn:
		if words = store.Words(l.Text); len(words) == 5 || len(words) == 6 { // the reason of a pause comes last, if there is one
			ok = true
			q.worker, q.claim, q.kind, q.scope, q.until = words[0], words[1], words[2], words[3], number(words[4])
			q.reason = strings.Join(words[5:], "")
		}
	case store.MailRefund:
		if words = store.Words(l.Text); len(words) == 2 {
			ok = true
			q.claim, q.cost = words[0], max(1, int(number(words[1])))
		}
	}
	if !ok {
		return q, false
	}
	var err error
	_, q.spent, q.lane, err = envelope.ParseClaim(q.claim)
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
		case store.MailEnded:
			t.freed = true
			t.hungry.Store(false)
		case store.MailFinished:
			t.sched.Ended(l.Text, now)
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
		case store.MailLate, store.MailReturn, store.MailRefund:
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

// settle answers the requests in a commit. Jobs that go back to the fronts of their lanes
// do so latest first.
func (t *term) settle(c *store.Commit, now int64) (answers map[string]answer) {
	answers = make(map[string]answer)
	slices.SortStableFunc(t.requests, func(a, b request) int { return int(min(1, max(-1, b.spent-a.spent))) })
	for i := range t.requests {
		q := &t.requests[i]
		switch {
		case q.letter == store.MailRefund:
			t.sched.Refund(q.claim, q.cost, false, now)
			t.sooner(c, q.lane, now)
		case q.env == nil:
			if _, repeated := answers[q.claim]; q.letter == store.MailLate && !repeated {
				t.reply(c, answers, q, answer{})
			}
		case q.letter == store.MailLate:
			t.restart(c, q, now, answers)
		default:
			t.takeBack(c, q, now)
		}
	}
	return answers
}

// sooner lowers the bounds that Redis has of a user's lanes.
func (t *term) sooner(c *store.Commit, lane envelope.Lane, now int64) {
	for p := range 3 {
		lane.Priority = p
		c.Sooner(lane, now)
	}
}

// reply answers a late job: by the worker's hand, or, if it is our own, when the commit
// is done.
func (t *term) reply(c *store.Commit, answers map[string]answer, q *request, a answer) {
	if q.worker == t.r.cfg.Worker {
		answers[q.claim] = a
		return
	}
	c.Tell(q.worker, wordLate, q.claim, a.claim, text(a.slot), text(a.spread))
}

// restart gives a late job another slot, or puts it back into its lane.
func (t *term) restart(c *store.Commit, q *request, now int64, answers map[string]answer) {
	own := q.worker == t.r.cfg.Worker
	ahead := q.doubt
	if !own {
		ahead = 2*q.doubt + 300
	}
	ahead = max(ahead, q.ahead)
	const longest = 1_000_000
	spread := spreadOf(q.doubt)
	t.endClaim(c, q.worker, q.claim, q.lane, now)
	if q.doubt <= longest && t.sched.Restart(q.claim, now+ahead, q.cost, spread) {
		slot := now + ahead
		a := answer{envelope.Restarted(q.claim, slot+spread), slot, spread}
		c.Claim(q.worker, a.claim, q.job)
		t.sched.Begin(schedule.Claim{Name: a.claim, Lane: q.lane})
		t.reply(c, answers, q, a)
		return
	}
	if q.doubt > longest {
		t.sched.Refund(q.claim, q.cost, true, now)
	}
	t.reply(c, answers, q, answer{})
	t.sooner(c, q.lane, now)
	c.Count(q.lane.Tenant, "started", -1)
	t.requeue(q.lane, q.env)
}

// endClaim takes a claim from a worker. What it leaves free is counted again.
func (t *term) endClaim(c *store.Commit, worker, claim string, lane envelope.Lane, now int64) {
	c.EndClaim(worker, claim)
	t.sched.End(schedule.Claim{Name: claim, Lane: lane}, now)
	t.freed = t.freed || worker != t.r.cfg.Worker
}

// takeBack puts a job that a worker returns into its lane again.
func (t *term) takeBack(c *store.Commit, q *request, now int64) {
	t.endClaim(c, q.worker, q.claim, q.lane, now)
	if q.kind == returnUnstarted {
		t.fleet.distrust(q.worker)
		t.sched.Refund(q.claim, q.cost, true, now)
		t.sooner(c, q.lane, now)
		c.Count(q.lane.Tenant, "started", -1)
	} else {
		c.Count(q.lane.Tenant, "back", 1)
		q.env.Ready = now
	}
	if q.kind == returnRefunded {
		t.sched.Refund(q.claim, q.cost, false, now)
		t.sooner(c, q.lane, now)
	}
	if q.scope != "" {
		c.Pause(q.scope, q.until)
		if q.until > t.paused[q.scope] && q.reason != "" { // otherwise a longer pause has its own reason
			c.Explain(q.scope, q.until, q.reason)
		}
		t.paused[q.scope] = max(t.paused[q.scope], q.until)
		t.sched.Pause(q.scope, t.paused[q.scope], now)
	}
	t.requeue(q.lane, q.env)
}
