package runner

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// Config configures a [Runner]. All fields but Listened are required.
type Config struct {
	Store           *store.Store
	Worker          string // its name: never used before
	Host, Version   string // for people
	Places          *Places
	Lease           time.Duration
	ShutdownTimeout time.Duration
	Policies        func(source string, version int64) (*schedule.Policies, error)
	Handle          func(ctx context.Context, a Attempt) Outcome
	Metrics         Metrics
	Listened        func(left time.Duration) // told now and then for how long somebody listens yet
	Log             *slog.Logger
}

// Metrics are told what happens.
type Metrics interface {
	Claimed(jobs int)
	Started(delay time.Duration)
	Ended(outcome string)
	Late(by time.Duration)
	Committed()
	Leads(leads bool)
}

// An Attempt is one execution of a job.
type Attempt struct {
	Lane          envelope.Lane
	Job           *envelope.Envelope
	Slot, Started int64        // on Redis's clock
	Clock         func() int64 // what Redis's clock says by now
}

// An Outcome is what an attempt came to. The zero value is a job that is done.
type Outcome struct {
	Failed    bool
	Dead      bool          // no attempt more, whatever is left of them
	Uncounted bool          // if it failed: it has used up no attempt
	Delay     time.Duration // until the next attempt
	Error     string        // of what failed; why it pauses, which may be empty
	Refund    bool          // the user has seen nothing of it
	Yield     bool          // if it failed: further attempts are at low priority
	Pause     *Pause        // the attempt does not count: the job waits again, and others with it
}

// A Pause lets a scope wait.
type Pause struct {
	Scope string // a scope of package envelope
	Until int64
}

// A Runner is one run of a worker in one queue.
type Runner struct {
	cfg    Config
	store  *store.Store
	clock  *clock
	claims *claims
	places *share
	log    *slog.Logger

	listed   chan struct{}   // closed when the worker is in the fleet
	stop     chan struct{}   // closed when nothing may start any more
	gate     sync.Mutex      // held while a job is taken in, or the door is closed
	running  sync.WaitGroup  // jobs that are held
	handling context.Context // parent of the handlers' contexts, ended by kill
	kill     context.CancelFunc
	outlive  context.Context // for what must still reach Redis while the worker stops

	leading  atomic.Pointer[term] // what this worker leads; nil if it does not
	elect    chan bool            // look whether to lead: true if told to
	missed   chan struct{}        // a look has brought a job that no message had
	letters  inTray               // from this worker's own jobs to its own term
	policies policies
	delays   delays // of the newest starts
	deputy   atomic.Bool
	begun    time.Time    // what follows counts from then, by the monotonic clock
	demoted  atomic.Int64 // nanoseconds until it stands for leader again
}

// New returns a runner.
func New(cfg Config) *Runner {
	r := &Runner{
		cfg: cfg, begun: time.Now(), store: cfg.Store, clock: newClock(), places: cfg.Places.share(), log: cfg.Log,
		listed: make(chan struct{}), stop: make(chan struct{}), elect: make(chan bool, 1), missed: make(chan struct{}, 1),
	}
	r.claims = newClaims(r)
	r.clock.setBack = func(by time.Duration) {
		r.log.Warn("Redis's clock was set back; what is remembered lies ahead of it, and jobs wait until it has caught up. "+
			"waterclock doctor shows what lies ahead", "by", by.Round(time.Millisecond))
	}
	return r
}

// Run takes part in the queue until ctx ends, and returns when everything that the
// worker was given is done with.
func (r *Runner) Run(ctx context.Context) error {
	var cancel context.CancelFunc
	r.outlive, cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.handling, r.kill = context.WithCancel(r.outlive)
	defer cancel()
	defer r.kill()
	var services, leader, beats sync.WaitGroup
	leading, resign := context.WithCancel(r.outlive)
	beating, fallSilent := context.WithCancel(r.outlive)
	beats.Go(func() { r.beat(beating) })
	services.Go(func() { r.takeHand(r.outlive) })
	services.Go(func() { r.claims.ackAll(r.outlive) })
	leader.Go(func() { r.lead(leading) })

	<-ctx.Done()
	defer time.AfterFunc(r.cfg.ShutdownTimeout+2*lastPatience, cancel).Stop() // Redis may be away
	r.shutdown()
	resign()
	leader.Wait()
	fallSilent()
	beats.Wait() // one that comes after the worker has left would bring it back
	r.leave()
	cancel()
	r.nudge()
	services.Wait()
	return nil
}

// shutdown hands back what has not started, lets the handlers end, then makes them.
func (r *Runner) shutdown() {
	r.gate.Lock()
	close(r.stop)
	r.gate.Unlock()
	if t := r.leading.Load(); t != nil {
		t.handOver()
	}
	ended := make(chan struct{})
	go func() {
		r.running.Wait()
		close(ended)
	}()
	if !endsWithin(ended, r.cfg.ShutdownTimeout) {
		r.log.Warn("handlers run on after the shutdown timeout; cancelling them",
			"jobs", r.claims.count(), "timeout", r.cfg.ShutdownTimeout)
		r.kill()
		if !endsWithin(ended, lastPatience) {
			r.log.Error("leaving handlers behind that ignore the end of their context; their jobs will run again",
				"jobs", r.claims.count())
		}
	}
	r.claims.flush(r.outlive)
	r.awaitReturns()
}

// lastPatience bounds every wait of a worker that stops, after ShutdownTimeout.
const lastPatience = 5 * time.Second

// awaitReturns waits until the leader has taken back what this worker has returned.
func (r *Runner) awaitReturns() {
	ctx, cancel := context.WithTimeout(r.outlive, lastPatience)
	defer cancel()
	for r.claims.returning() > 0 && ctx.Err() == nil {
		left, err := r.store.Claims(ctx, []string{r.cfg.Worker})
		if err == nil && len(left) <= r.claims.count() {
			return
		}
		pause(ctx, 2*time.Millisecond)
	}
	if ctx.Err() != nil {
		r.log.Warn("jobs that were not started return when this worker's lease expires", "jobs", r.claims.returning())
	}
}

// leave takes the worker out of the fleet, unless it leaves jobs behind.
func (r *Runner) leave() {
	ctx, cancel := context.WithTimeout(r.outlive, lastPatience)
	defer cancel()
	left, err := r.store.Leave(ctx, r.cfg.Worker)
	for ; !left && ctx.Err() == nil && r.claims.count() == 0; left, err = r.store.Leave(ctx, r.cfg.Worker) {
		pause(ctx, 5*time.Millisecond)
		if err := r.claims.reconcile(ctx); err != nil { // something on its way here goes back first
			r.log.Debug("comparing claims", "err", err)
		}
	}
	if err != nil {
		r.log.Debug("leaving the fleet", "err", err)
	}
}

// nudge ends the wait for this worker's hand.
func (r *Runner) nudge() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.outlive), time.Second)
	defer cancel()
	if err := r.store.Nudge(ctx, r.cfg.Worker); err != nil {
		r.log.Debug("ending the wait for jobs", "err", err)
	}
}

// now returns an instant that Redis's clock has reached.
func (r *Runner) now() int64 {
	now, _ := r.clock.now()
	return now
}

func (r *Runner) stopping() bool {
	select {
	case <-r.stop:
		return true
	default:
		return false
	}
}

func endsWithin(ended chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ended:
		return true
	case <-timer.C:
		return false
	}
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// signal sets a flag that a channel of capacity 1 is.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
