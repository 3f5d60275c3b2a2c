package leader

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waterclock/waterclock/queue/internal/clock"
	"github.com/waterclock/waterclock/queue/internal/elect"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/retry"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
	"github.com/waterclock/waterclock/queue/internal/worker"
)

// Everything that a term knows is a copy of what Redis holds, and it may be wrong in three ways:
//
//  1. Somebody has changed something: the number of changes is part of the fence, so Redis refuses the next commit,
//     and the term reads the settings again ([term.refresh]).
//  2. The lease had run out before a commit: offers tell nobody then. The reply says so, and everything is read
//     again ([errLapsed]).
//  3. The reply to a commit is lost: the term takes a new token, learns which commits happened, and reads everything
//     again ([term.renew], [term.resync]).
//
// A term ends when another worker leads ([store.ErrDeposed]), or this one gives up ([term.fit]) or stops.

// A term is a time in which this worker leads the queue: it decides, and commits what it
// has decided. Everything it knows is a copy of what Redis holds; after any doubt it reads
// that again.
type term struct {
	w      *worker.Worker
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
	flights   []*inflight            // commits under way, in their order
	inDoubt   []*inflight            // sent, and nobody knows whether they happened
	spare     []*store.Commit        // empty, to be used again
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

// Serve leads until somebody else does, or ctx ends. The term has begun: Redis has given the token.
func Serve(ctx context.Context, w *worker.Worker, first store.Term) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := &term{
		w: w, ctx: ctx, kicks: make(chan struct{}, 1), reports: make(chan func(int64), 16), sweeps: func() {}, mail: make(chan post, 16), mailed: first.Mail,
		full: make(map[string]bool), trimmers: make(map[string]*trimmer), broken: make(map[envelope.Lane]bool),
		fence: store.Fence{Token: first.Token, Lease: elect.Lease(w.Clock), Seq: first.Seq + 1, Changes: first.Changes},
	}
	t.fleet.w = w
	var reader sync.WaitGroup
	reader.Go(func() { t.readMail(ctx, first.Mail) })
	w.Leads(t)
	w.Log.Debug("leading", "term", first.Token)

	err := t.lead(ctx)
	t.abandon()
	w.Leads(nil)
	w.Log.Debug("leading no more", "term", t.fence.Token, "why", err)
	t.passOn()
	if !errors.Is(err, store.ErrDeposed) {
		t.resign()
	}
	cancel()
	t.sweeps()
	t.workers.Wait()
	t.wakeReader()
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
	left = append(left, t.w.Letters.Take()...)
	if len(left) > 0 {
		t.w.Retry("writing to the leader", func(ctx context.Context) error { return t.w.Store.Write(ctx, left...) })
	}
}

// resign lets somebody else lead at once.
func (t *term) resign() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.w.Outlive()), time.Second)
	defer cancel()
	if err := t.w.Store.Resign(ctx, t.fence.Token, t.successor()); err != nil {
		t.w.Log.Debug("resigning", "err", err)
	}
}

// successor returns the deputy that leads next: the one that knows Redis's clock best; "" for none.
func (t *term) successor() string {
	if t.nearest != nil {
		return t.nearest.Worker
	}
	return ""
}

// Kick lets the term look at once.
func (t *term) Kick() { retry.Signal(t.kicks) }

// Hungry reports whether jobs wait for a place.
func (t *term) Hungry() bool { return t.hungry.Load() }

// readMail reads what the leader is told, until ctx ends: what comes in quick succession is read
// together.
func (t *term) readMail(ctx context.Context, after string) {
	trouble := retry.NewTrouble(t.w.Log, "reading the leader's mail")
	for ctx.Err() == nil {
		from := after // a try that was given up may still read it
		mail, err := retry.Persist(ctx, mailPatience+t.w.Patience(), func(ctx context.Context) (p post, err error) {
			p.last, p.letters, err = t.w.Store.ReadMail(ctx, from, mailPatience)
			return p, err
		})
		if wait := trouble.After(err); wait > 0 {
			retry.Pause(ctx, wait)
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
		retry.Pause(ctx, gatherFor)
	}
}

// mailPatience is how long one wait for mail lasts: so long it takes to notice that the connection
// has died.
const mailPatience = time.Second

// wakeReader ends the wait for mail, with a letter that is about no claim.
func (t *term) wakeReader() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.w.Outlive()), time.Second)
	defer cancel()
	if err := t.w.Store.Write(ctx, store.Letter{Subject: store.MailFinished}); err != nil {
		t.w.Log.Debug("ending the wait for mail", "err", err)
	}
}

// lead goes round until the term ends, and says why it did.
func (t *term) lead(ctx context.Context) error {
	trouble := retry.NewTrouble(t.w.Log, "leading")
	for {
		err := t.resync(ctx)
		for err == nil {
			trouble.After(nil)
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
			t.w.Log.Debug("reading everything again", "why", err)
			continue
		}
		// Redis has lost the policies, or nobody knows what became of the last commit. Under a
		// new token nothing that was sent under the old one can happen any more.
		for err != nil {
			retry.Pause(ctx, trouble.After(err))
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
	next, err := t.w.Store.Lead(ctx, t.w.Name, elect.Lease(t.w.Clock), t.fence.Token)
	if err != nil {
		return err
	}
	t.w.Clock.Observe(next.Reading)
	if next.Token == "" {
		return store.ErrDeposed
	}
	t.resolve(next.Seq)
	t.fence.Token, t.fence.Seq = next.Token, next.Seq+1
	return nil
}

// resync reads everything anew. Who has been served is in no other place: the new scheduler takes that over from
// the one before, so that an error of a connection changes nobody's turn.
func (t *term) resync(ctx context.Context) error {
	settings, err := t.settings(ctx)
	if err != nil {
		return err
	}
	queue, err := t.w.Store.States(ctx, []string{envelope.QueueScope})
	if err != nil {
		return err
	}
	before := t.sched
	t.sched = schedule.New(settings, queue[0])
	t.fleet.held = t.sched.Held
	if before != nil {
		t.sched.TakeTurns(before)
	}
	t.ripeAt, t.musterAt, t.uncounted = 0, 0, true
	t.govern(ctx, settings.Policies)
	now, _ := t.w.Clock.Now()
	return t.muster(ctx, now)
}

// refresh takes in what people have decided: policies, pauses, cancelled jobs.
func (t *term) refresh(ctx context.Context) error {
	settings, err := t.settings(ctx)
	if err != nil {
		return err
	}
	t.sched.Step(t.w.Now(), settings)
	t.govern(ctx, settings.Policies)
	return nil
}

// The bounds of lanes in Redis were computed under the policies of their time. Under others they may be too late,
// and a lane that is not in memory is found only when its bound comes. So a sweep lowers them ([term.sweep]).

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

// settings reads what people have decided. What changes from now on makes Redis refuse the commits.
func (t *term) settings(ctx context.Context) (schedule.Settings, error) {
	read, err := t.w.Store.Settings(ctx)
	if err != nil {
		return schedule.Settings{}, err
	}
	t.w.Policies.Saw(read.Policies)
	policies, err := t.w.InForce(ctx, read.Source, read.Version)
	if err != nil {
		return schedule.Settings{}, err
	}
	t.fence.Changes, t.stale, t.paused = read.Changes, false, read.Paused
	return schedule.Settings{Policies: policies, Paused: read.Paused, Cancelled: read.Cancelled}, nil
}

// wait waits until there is something to decide, at the latest until the lease has to be
// renewed. A timer that rings late says that this worker is short of CPU ([lateness]).
func (t *term) wait(ctx context.Context, next int64) error {
	now, _ := t.w.Clock.Now()
	for _, at := range []int64{t.ripeAt, t.musterAt} {
		next = min(next, at)
	}
	left := t.renewEvery() - time.Since(t.renewed)
	if next != math.MaxInt64 {
		left = min(left, clock.Micros(next-now))
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
			take(t.w.Now())
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
		retry.Pause(ctx, left)
	}
}

// collect takes in what has been told by now.
func (t *term) collect() {
	for _, letter := range t.w.Letters.Take() {
		t.open([]store.Letter{letter})
		if n := len(t.requests); n > 0 && t.requests[n-1].own == nil && letter.Subject == store.MailReturn {
			t.requests[n-1].own = &letter
		}
	}
	for len(t.requests) < mostRequests {
		select {
		case p := <-t.mail:
			t.receive(p)
		case take := <-t.reports:
			take(t.w.Now())
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
