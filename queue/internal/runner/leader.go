package runner

import (
	"context"
	"errors"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A term is a time in which this worker leads the queue: it decides, and commits what it
// has decided. Everything it knows is a copy of what Redis holds; after any doubt it reads
// that again.
type term struct {
	r      *Runner
	ctx    context.Context
	kicks  chan struct{} // something has happened in this worker
	hungry atomic.Bool   // jobs wait for a place

	fence    store.Fence
	mailed   string // the newest letter that was opened
	mail     chan post
	reports  chan func(now int64) // what the work beside the rounds has found; see [term.report]
	sweeps   context.CancelFunc   // ends the sweep under way
	workers  sync.WaitGroup       // the work beside the rounds
	renewed  time.Time            // the last commit
	wrote    time.Time            // the last one that did more than read
	sched    *schedule.Scheduler
	fleet    fleet
	paused   map[string]int64
	stale    bool  // policies, pauses or cancelled jobs have changed
	governed int64 // the version of the policies under which bounds were swept last

	requests  []request       // letters about claims, not yet settled in a commit
	comebacks []comeback      // of the commit that is being made
	orders    []order         // for the hands of workers
	full      map[string]bool // tenants with more waiting than fits
	trimmers  map[string]*trimmer
	resting   bool // tenants are being forgotten
	deputies  []string
	nearest   *member // of the deputies
	uncounted bool    // what runs was not read yet
	roomy     bool    // a job may start that could not at the last decision
	ripeAt    int64   // when something that waits for its time is due
	musterAt  int64   // when to look who works
	trimAt    int64   // when to trim the mail
	unpauseAt int64   // when to look for pauses that have ended
	trimmed   string
	lateness  lateness
	flights   []*bundle              // commits under way, in their order
	inDoubt   []*bundle              // sent, and nobody knows whether they happened
	broken    map[envelope.Lane]bool // their keys have another type
}

// A post is what one reading of the mail brought.
type post struct {
	last    string
	letters []store.Letter
}

// The errors of a leader that is too slow and has a deputy, and of one that is much further
// from Redis than that.
var (
	errTired = errors.New("queue: the leader is short of CPU")
	errFar   = errors.New("queue: another worker is nearer to Redis")
)

// serve leads until somebody else does, or ctx ends.
func (r *Runner) serve(ctx context.Context, first store.Term) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := &term{
		r: r, ctx: ctx, kicks: make(chan struct{}, 1), reports: make(chan func(int64), 16), sweeps: func() {}, mail: make(chan post, 16), mailed: first.Mail,
		full: make(map[string]bool), trimmers: make(map[string]*trimmer), broken: make(map[envelope.Lane]bool),
		fence: store.Fence{Token: first.Token, Lease: r.leaderLease(), Seq: first.Seq + 1, Changes: first.Changes},
	}
	t.fleet.r = r
	r.deputy.Store(false)
	var reader sync.WaitGroup
	reader.Go(func() { t.readMail(ctx, first.Mail) })
	r.letters.setOpen(true)
	r.leading.Store(t)
	r.cfg.Metrics.Leads(true)
	r.log.Debug("leading", "term", first.Token)

	err := t.lead(ctx)
	t.abandon()
	r.leading.Store(nil)
	r.letters.setOpen(false)
	r.cfg.Metrics.Leads(false)
	r.log.Debug("leading no more", "term", t.fence.Token, "why", err)
	t.passOn()
	if !errors.Is(err, store.ErrDeposed) {
		t.resign()
	}
	if !r.stopping() {
		r.demoted.Store(int64(time.Since(r.begun) + sitOut))
	}
	cancel()
	t.sweeps()
	t.workers.Wait()
	r.wakeReader()
	reader.Wait()
}

// passOn posts the letters of this worker's own jobs that this term has not answered.
func (t *term) passOn() {
	var left []store.Letter
	for _, q := range t.requests {
		if q.own != nil {
			left = append(left, *q.own)
		}
	}
	left = append(left, t.r.letters.take()...)
	if len(left) > 0 {
		t.r.retry("writing to the leader", func(ctx context.Context) error { return t.r.store.Write(ctx, left...) })
	}
}

// resign lets somebody else lead at once.
func (t *term) resign() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.r.outlive), time.Second)
	defer cancel()
	if err := t.r.store.Resign(ctx, t.fence.Token, t.successor()); err != nil {
		t.r.log.Debug("resigning", "err", err)
	}
}

func (t *term) successor() string {
	if t.nearest != nil {
		return t.nearest.Worker
	}
	return ""
}

// handOver is called when the worker stops: if others can lead, one does.
func (t *term) handOver() { t.kick() }

// kick lets the term look at once.
func (t *term) kick() { signal(t.kicks) }

// readMail reads what the leader is told, until ctx ends: what comes in quick succession is read
// together.
func (t *term) readMail(ctx context.Context, after string) {
	trouble := newTrouble(t.r.log, "reading the leader's mail")
	for ctx.Err() == nil {
		from := after // a try that was given up may still read it
		mail, err := persist(ctx, mailPatience+t.r.patience(), func(ctx context.Context) (p post, err error) {
			p.last, p.letters, err = t.r.store.ReadMail(ctx, from, mailPatience)
			return p, err
		})
		if wait := trouble.after(err); wait > 0 {
			pause(ctx, wait)
			continue
		}
		if len(mail.letters) == 0 {
			continue
		}
		after = mail.last
		select {
		case t.mail <- mail:
		case <-ctx.Done():
		}
		pause(ctx, gatherFor)
	}
}

// mailPatience is how long one wait for mail lasts: so long it takes to notice that the connection
// has died.
const mailPatience = time.Second

// wakeReader ends the wait for mail, with a letter that is about no claim.
func (r *Runner) wakeReader() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.outlive), time.Second)
	defer cancel()
	if err := r.store.Write(ctx, store.Letter{Subject: store.MailFinished}); err != nil {
		r.log.Debug("ending the wait for mail", "err", err)
	}
}

// lead goes round until the term ends, and says why it did.
func (t *term) lead(ctx context.Context) error {
	trouble := newTrouble(t.r.log, "leading")
	for {
		err := t.resync(ctx)
		for err == nil {
			trouble.after(nil)
			err = t.round(ctx)
		}
		for len(t.flights) > 0 { // nothing may be under way when everything is read again
			if failed := t.land(ctx); failed != nil {
				err = failed
			}
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, store.ErrDeposed), errors.Is(err, errTired), errors.Is(err, errFar), errors.Is(err, errStopping):
			return err
		case errors.Is(err, errLapsed):
			t.r.log.Debug("reading everything again", "why", err)
			continue
		}
		// Redis has lost the policies, or nobody knows what became of the last commit. Under a
		// new token nothing that was sent under the old one can happen any more.
		for err != nil {
			pause(ctx, trouble.after(err))
			if ctx.Err() != nil {
				err = ctx.Err()
			} else {
				err = t.renew(ctx)
			}
			if errors.Is(err, store.ErrDeposed) || ctx.Err() != nil {
				return err
			}
		}
	}
}

var (
	errLapsed   = errors.New("queue: the leader's lease had run out")
	errStopping = errors.New("queue: the worker stops")
)

// renew leads on under a new token, and finds out which commits happened.
func (t *term) renew(ctx context.Context) error {
	next, err := t.r.store.Lead(ctx, t.r.cfg.Worker, t.r.leaderLease(), t.fence.Token)
	if err != nil {
		return err
	}
	t.r.clock.observe(next.Reading)
	if next.Token == "" {
		return store.ErrDeposed
	}
	t.resolve(next.Seq)
	t.fence.Token, t.fence.Seq = next.Token, next.Seq+1
	return nil
}

// resync reads everything anew.
func (t *term) resync(ctx context.Context) error {
	facts, err := t.facts(ctx)
	if err != nil {
		return err
	}
	queue, err := t.r.store.States(ctx, []string{envelope.QueueScope})
	if err != nil {
		return err
	}
	facts.Queue = queue[0]
	before := t.sched
	t.sched = schedule.New(facts)
	t.fleet.held = t.sched.Held
	if before != nil {
		t.sched.TakeTurns(before)
	}
	t.ripeAt, t.musterAt, t.uncounted = 0, 0, true
	t.govern(ctx, facts.Policies)
	now, _ := t.r.clock.now()
	return t.muster(ctx, now)
}

// refresh takes in what people have decided: policies, pauses, cancelled jobs.
func (t *term) refresh(ctx context.Context) error {
	facts, err := t.facts(ctx)
	if err != nil {
		return err
	}
	t.sched.Change(facts, t.r.now())
	t.govern(ctx, facts.Policies)
	return nil
}

// govern lets the bounds in Redis be swept if they were computed under other policies.
func (t *term) govern(ctx context.Context, p *schedule.Policies) {
	if p == nil || p.Version == t.governed {
		return
	}
	t.governed = p.Version
	t.sweeps() // one that is in the middle of a step does no harm
	sweeping, stop := context.WithCancel(ctx)
	t.sweeps = stop
	t.workers.Go(func() { t.sweep(sweeping, p.Version) })
}

// facts reads what people have decided. What changes from now on makes Redis refuse the commits.
func (t *term) facts(ctx context.Context) (schedule.Facts, error) {
	meta, err := t.r.store.Meta(ctx)
	if err != nil {
		return schedule.Facts{}, err
	}
	t.r.policies.saw(meta.Policies)
	policies, err := t.r.readPolicies(ctx)
	if err != nil {
		return schedule.Facts{}, err
	}
	paused, err := t.r.store.Pauses(ctx)
	if err != nil {
		return schedule.Facts{}, err
	}
	cancelled, err := t.r.store.CancelledIDs(ctx)
	if err != nil {
		return schedule.Facts{}, err
	}
	t.fence.Changes, t.stale, t.paused = meta.Changes, false, paused
	return schedule.Facts{Policies: policies, Paused: paused, Cancelled: cancelled}, nil
}

// wait waits until there is something to decide, at the latest until the lease has to be
// renewed.
func (t *term) wait(ctx context.Context, next int64) error {
	now, _ := t.r.clock.now()
	for _, at := range []int64{t.ripeAt, t.musterAt} {
		next = min(next, at)
	}
	left := t.renewEvery() - time.Since(t.renewed)
	if next != math.MaxInt64 {
		left = min(left, micros(next-now))
	}
	due := time.Now().Add(left)
	if left > 0 {
		timer := time.NewTimer(left)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case p := <-t.mail:
			t.receive(p)
			return nil // the reading has gathered already
		case take := <-t.reports:
			take(t.r.now())
		case <-t.kicks:
			return nil // a place is free, or a job waits for an answer: at once
		case <-timer.C:
			t.lateness.note(time.Since(due))
		}
	}
	t.gather(ctx)
	return nil
}

// gatherFor is the time between two readings of the mail, and between a commit and one for lanes
// that fall due. What comes in quick succession shares them; what comes alone does not wait.
const gatherFor = time.Millisecond

// gather lets more lanes fall due while commits follow each other closely.
func (t *term) gather(ctx context.Context) {
	if left := gatherFor - time.Since(t.wrote); left > 0 {
		pause(ctx, left)
	}
}

// collect takes in what has been told by now.
func (t *term) collect() {
	for _, letter := range t.r.letters.take() {
		t.open([]store.Letter{letter})
		if n := len(t.requests); n > 0 && t.requests[n-1].own == nil && t.requests[n-1].letter == letter.Subject {
			t.requests[n-1].own = &letter
		}
	}
	for len(t.requests) < mostRequests {
		select {
		case p := <-t.mail:
			t.receive(p)
		case take := <-t.reports:
			take(t.r.now())
		default:
			return
		}
	}
}

// mostRequests is about how many requests one commit settles: others wait for it.
const mostRequests = 200

// receive opens what one reading of the mail brought.
func (t *term) receive(p post) {
	t.mailed = p.last
	t.open(p.letters)
}

// report lets the rounds take in what the work beside them has found, unless ctx ends before.
func (t *term) report(ctx context.Context, take func(now int64)) {
	select {
	case t.reports <- take:
	case <-ctx.Done():
	}
}

func text(n int64) string { return strconv.FormatInt(n, 10) }
