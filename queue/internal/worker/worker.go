package worker

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waterclock/waterclock/queue/internal/clock"
	"github.com/waterclock/waterclock/queue/internal/elect"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/members"
	"github.com/waterclock/waterclock/queue/internal/retry"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
	"github.com/waterclock/waterclock/throttle"
)

// A Worker is the part of a worker that stays the same whoever leads. Its goroutines are those of the beats, of the
// mailbox, of the acknowledgements, and one for each job that it holds; package runner starts them. They share the claims,
// the places and the clock, each of which has its own lock or none.
//
// A worker that leads has its own term beside itself in the program. The two know little of each other: the term gives
// its own jobs to [Worker.Accept] without a message, takes ends along with its commits ([Claims.TakeEnds]), and reads
// notices from a tray ([Tray]). The worker knows of its term that it can be kicked, and whether jobs wait for a place.

// Config configures a [Worker]. All fields but Of, Led, Fleet, Listened and Claimed are required.
type Config struct {
	Store         *store.Store
	Name          string // never used before: claims of another run must not be taken for those of this one
	Of            string // its name in the whole queue, if that has partitions; otherwise ""
	Host, Version string // for people

	// Led is how many partitions of the queue the program leads; nil if the queue has one.
	Led *elect.Led

	// Places are shared with the other queues of the program.
	Places *Places

	// Fleet is how many places all workers of the queue have, if it has partitions; otherwise nil.
	Fleet *atomic.Int64

	// Lease is how long the worker keeps its claims without a beat.
	Lease time.Duration

	// ShutdownTimeout is how long handlers may run on when the worker stops, before their contexts end.
	ShutdownTimeout time.Duration

	// Policies compiles the source of policies, as they hold at now. The result never changes.
	Policies func(source string, version, now int64) (*schedule.Policies, error)

	// Handle runs the handler of a job, in the job's own goroutine: as many at a time as there are places.
	Handle func(ctx context.Context, a Attempt) Outcome

	Shared *throttle.Limiter // decides about shared limits, while this worker leads

	Metrics  Metrics                  // nil keeps none
	History  time.Duration            // for which the past of a job with an ID of its own is known; below 1 nothing is noted
	Listened func(left time.Duration) // told with each beat for how long somebody listens yet, below 0 if nobody does
	Claimed  func(*schedule.Start)    // told of each job that was claimed, while this worker leads
	Log      *slog.Logger
}

// An Attempt is one execution of a job.
type Attempt struct {
	Lane          envelope.Lane
	Job           *envelope.Envelope    // with its payload, also if that was kept apart
	Limits        func() []schedule.Use // by name: those that count the job, by the newest policies that the worker knows
	Slot, Started int64                 // on Redis's clock, in µs
	Clock         func() int64          // what Redis's clock says by now
}

// An Outcome is what an attempt came to. The zero value is a job that is done. If Pause or SentOn is set Failed does not count.
type Outcome struct {
	Failed    bool
	Dead      bool          // no attempt more, whatever is left of them
	Uncounted bool          // if it failed: it has used up no attempt
	Delay     time.Duration // until the next attempt
	Error     string        // of what failed; why it pauses, which may be empty
	Refund    bool          // the user has seen nothing of it
	Yield     bool          // if it failed: further attempts are at low priority
	Pause     *Pause        // the attempt does not count: the job waits again, and others with it
	SentOn    int64         // the attempt does not count: another worker gets the job, and this one no job until then, µs; 0 if not
}

// A Pause lets a scope wait until an instant. The zero value pauses nothing: the job alone waits again.
type Pause struct {
	Scope string // a scope of package envelope; "" for none
	Until int64  // in µs of Redis's clock
}

// A Worker is one run of a worker in one queue.
type Worker struct {
	Name     string
	Lease    time.Duration
	Store    *store.Store
	Clock    *clock.Clock
	Claims   *Claims
	Places   *Share
	Policies Policies // the newest that it has seen
	Shared   *throttle.Limiter
	Past     *past
	Notices  Tray // from its own jobs to the term in which it leads
	Metrics  Metrics
	Log      *slog.Logger

	cfg      Config
	elector  *elect.Elector
	leading  atomic.Pointer[Leader] // what this worker leads; nil if it does not
	listed   chan struct{}          // closed when the worker is in the fleet
	missed   chan struct{}          // a look has brought a job that no message had
	reading  background             // of policies
	delays   delays                 // of the newest starts
	stop     chan struct{}          // closed when nothing may start any more
	gate     sync.Mutex             // held while a job is taken in, or the door is closed
	running  sync.WaitGroup         // jobs that are held
	behind   bool                   // handlers run on that have ignored the end of their contexts
	commands chan struct{}          // full while [Worker.Retry] has that many commands under way
	outlive  context.Context        // for what must still reach Redis while the worker stops
	handling context.Context        // parent of the handlers' contexts, ended by kill
	kill     context.CancelFunc
}

// A Leader is the term in which a worker leads, as far as the worker's own jobs have to do with it.
type Leader interface {
	Kick()              // something has happened in this worker: look at once
	Need() members.Need // how jobs do for places
}

// Need returns how the jobs of the queue do for places, if this worker leads; otherwise [members.Enough].
func (w *Worker) Need() members.Need {
	if leader, leads := w.leader(); leads {
		return leader.Need()
	}
	return members.Enough
}

// FleetPlaces returns how many places all workers of a queue with partitions have; 0 if the queue has none.
func (w *Worker) FleetPlaces() int {
	if w.cfg.Fleet == nil {
		return 0
	}
	return int(w.cfg.Fleet.Load())
}

// commandsPerCore is how many commands of its jobs a worker sends at once, for each core: go-redis has 10 connections
// for each, and a command that waits longer than its timeout for one fails.
const commandsPerCore = 8

// New returns a worker, which reads Redis's time by a clock, and passes on to its elector what it is told about
// leadership.
func New(cfg Config, c *clock.Clock, elector *elect.Elector) *Worker {
	w := &Worker{
		Name: cfg.Name, Lease: cfg.Lease, Store: cfg.Store, Clock: c, Places: cfg.Places.Share(), Shared: cfg.Shared, Metrics: metricsOr(cfg.Metrics), Log: cfg.Log,
		cfg: cfg, elector: elector, listed: make(chan struct{}), missed: make(chan struct{}, 1), stop: make(chan struct{}),
		commands: make(chan struct{}, commandsPerCore*runtime.GOMAXPROCS(0)),
	}
	w.Claims, w.Past = newClaims(w), newPast(w)
	return w
}

// Begin comes before all other methods. Outlive ends when nothing needs to reach Redis any more: later than the worker
// is told to stop. The handlers' contexts end with it, or when Shutdown loses patience.
func (w *Worker) Begin(outlive context.Context) {
	w.outlive = outlive
	w.handling, w.kill = context.WithCancel(outlive)
}

// Listed is closed when the worker is in the fleet. Before that it must not lead: nobody would reap jobs that it gave
// itself.
func (w *Worker) Listed() <-chan struct{} { return w.listed }

// Leads notes that the worker leads, or no more: then leader is nil. The tray is opened before, and closed before: so a
// job that finds a leader but a closed tray writes its notice to Redis.
func (w *Worker) Leads(leader Leader) {
	w.Notices.SetOpen(leader != nil)
	if leader == nil {
		w.leading.Store(nil)
	} else {
		w.leading.Store(&leader)
	}
	w.Metrics.Leads(leader != nil)
}

// leader returns the term in which this worker leads, if it does.
func (w *Worker) leader() (leader Leader, leads bool) {
	if l := w.leading.Load(); l != nil {
		return *l, true
	}
	return nil, false
}

// tellHungry lets the term look at once if jobs wait for a place.
func (w *Worker) tellHungry() {
	if leader, leads := w.leader(); leads && leader.Need() == members.Short {
		leader.Kick()
	}
}

// Nudge ends the wait for this worker's mailbox.
func (w *Worker) Nudge() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.outlive), time.Second)
	defer cancel()
	if err := w.Store.Nudge(ctx, w.Name, w.Now()); err != nil {
		w.Log.Debug("ending the wait for jobs", "err", err)
	}
}

// Now returns an instant that Redis's clock has reached.
func (w *Worker) Now() int64 {
	now, _ := w.Clock.Now()
	return now
}

// Stopping reports whether nothing may start any more.
func (w *Worker) Stopping() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

// LeadsTooMuch reports whether the worker should hand over one of the partitions that it leads.
func (w *Worker) LeadsTooMuch() bool { return w.cfg.Led.Excess() }

// Outlive returns a context for what must still reach Redis while the worker stops.
func (w *Worker) Outlive() context.Context { return w.outlive }

// Patience is how long a beat or the end of a job waits for its answer before it is sent again:
// many times in a lease, and longer than an answer usually takes.
func (w *Worker) Patience() time.Duration {
	_, doubt := w.Clock.Now()
	return max(w.Lease/20, min(2*doubt, w.Lease/5))
}

// Retry does something that needs Redis until it works, and returns false if the worker's time runs out first. The jobs
// of the worker call it, each for itself; so many of them at a time send commands (commandsPerCore) that some of the
// client's connections are left to the beats and the leader. What it does may run twice.
func (w *Worker) Retry(act string, do func(ctx context.Context) error) bool {
	trouble := retry.NewTrouble(w.Log, act)
	for {
		w.commands <- struct{}{}
		err := do(w.outlive)
		<-w.commands
		wait := trouble.After(err)
		if wait == 0 {
			return true
		}
		if w.outlive.Err() != nil {
			return false
		}
		retry.Pause(w.outlive, wait)
	}
}

// tell writes a notice to the leader; to this worker's own term directly. It returns
// false if the worker's time ran out.
func (w *Worker) tell(notice store.Notice) bool {
	if leader, leads := w.leader(); leads && w.Notices.Put(notice) {
		leader.Kick()
		return true
	}
	return w.Retry("writing to the leader", func(ctx context.Context) error { return w.Store.Write(ctx, notice) })
}

// A background runs a function while its caller goes on, one at a time: another one is passed over while it does.
type background struct{ busy atomic.Bool }

func (b *background) run(act func()) {
	if b.busy.CompareAndSwap(false, true) {
		go func() {
			defer b.busy.Store(false)
			act()
		}()
	}
}
