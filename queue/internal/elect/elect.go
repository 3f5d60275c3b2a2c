// Package elect decides when a worker leads its queue.
//
// Leadership is a lease in Redis, which only commits of the leader extend. An [Elector] takes it
// when nobody has it, and calls a function that leads until the term is over:
//
//	e := elect.New(elect.Config{Store: s, Clock: c, Worker: "a", Log: log})
//	err := e.Run(ctx, func(ctx context.Context, term store.Term) {
//		// decide and commit, until another leads or ctx ends
//	})
//
// Who looks when:
//
//  1. The deputies, two workers whom the leader appoints, look when the lease ends that they know of, and take it
//     unless it was renewed.
//  2. Every other worker is told by its beats that nobody leads ([Elector.Look]).
//  3. A leader that stops, or gives up, names a deputy, who is told and leads at once ([Elector.Lead]).
//  4. Who has just come looks every [Looks], until the lease that it found is renewed or has ended: a leader that was killed
//     or has resigned then may have known of nobody.
package elect

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/waterclock/waterclock/queue/internal/clock"
	"github.com/waterclock/waterclock/queue/internal/retry"
	"github.com/waterclock/waterclock/queue/internal/store"
)

const (
	// shortest is the lease of a leader that is near to Redis and has deputies.
	shortest = 500 * time.Millisecond
	// alone is that of a worker that is alone: nobody would wait for its end.
	alone = time.Second
	// calm is that of a leader that has had nothing to do for a while.
	calm = 3 * time.Second
	// A leader that is far away may take tripsToLead round trips for a commit with all that it reads
	// before: its lease is longer by them, at most by longestTrips.
	tripsToLead  = 30
	longestTrips = 10 * time.Second
	// Looks is how often a worker that has just come looks whether somebody leads.
	Looks = 120 * time.Millisecond
	// sitOut is how long a leader that was deposed, or gave up, does not lead again while
	// somebody else could.
	sitOut = 5 * time.Second
)

// Lease returns how long the lease of a leader with this clock is.
func Lease(c *clock.Clock) time.Duration {
	_, doubt := c.Now()
	return shortest + min(tripsToLead*doubt, longestTrips)
}

// LeaseAlone returns how long it is while there is no other worker.
func LeaseAlone(c *clock.Clock) time.Duration { return max(alone, Lease(c)) }

// LeaseCalm returns how long it is while there is nothing to do.
func LeaseCalm(c *clock.Clock) time.Duration { return max(calm, Lease(c)) }

// Config configures an [Elector]. All fields but Led are required.
type Config struct {
	Store  *store.Store
	Clock  *clock.Clock
	Worker string // its name
	Led    *Led   // of the partitions of the queue, by this worker; nil if there is one
	Log    *slog.Logger
}

// An Elector is a worker's part in the election of the leader.
type Elector struct {
	cfg      Config
	told     chan bool // look; true if told to lead
	deputy   atomic.Bool
	stopping atomic.Bool
}

// New returns an elector.
func New(cfg Config) *Elector { return &Elector{cfg: cfg, told: make(chan bool, 1)} }

// Look lets the worker look whether somebody leads.
func (e *Elector) Look() { e.tell(false) }

// Lead lets the worker lead: the leader has named it.
func (e *Elector) Lead() { e.tell(true) }

// Appoint makes the worker a deputy, or one no more.
func (e *Elector) Appoint(deputy bool) {
	if e.deputy.Swap(deputy) != deputy {
		e.Look()
	}
}

// Stop lets the worker lead only if nobody else does: it will stop.
func (e *Elector) Stop() { e.stopping.Store(true) }

func (e *Elector) tell(lead bool) {
	select {
	case e.told <- lead:
	default:
	}
}

// Run calls lead whenever it is this worker's turn, until ctx ends. The worker has to be in the fleet
// by then: otherwise nobody would reap jobs that it had given itself.
func (e *Elector) Run(ctx context.Context, lead func(ctx context.Context, first store.Term)) {
	trouble := retry.NewTrouble(e.cfg.Log, "looking for a leader")
	told := true        // nobody may lead when the first worker comes
	var until time.Time // it does not lead before, while somebody else could
	for ctx.Err() == nil {
		if (time.Now().Before(until) || e.stopping.Load()) && !told {
			retry.Pause(ctx, Looks)
			// If nobody else leads either, a tired leader is better than none.
			meta, err := retry.Persist(ctx, e.patience(), e.cfg.Store.Meta)
			now, _ := e.cfg.Clock.Now()
			if err != nil || meta.Till+2*shortest.Microseconds() > now {
				continue
			}
		}
		term, err := e.cfg.Store.Lead(ctx, e.cfg.Worker, Lease(e.cfg.Clock), "")
		if wait := trouble.After(err); wait > 0 {
			retry.Pause(ctx, wait)
			continue
		}
		e.cfg.Clock.Observe(term.Reading)
		if term.Token == "" {
			told = e.awaitTurn(ctx, term.Till)
			continue
		}
		e.deputy.Store(false)
		e.cfg.Led.add(1)
		lead(ctx, term)
		e.cfg.Led.add(-1)
		if told = false; !e.stopping.Load() {
			until = time.Now().Add(sitOut)
		}
	}
}

// patience is how long a look waits for its answer before it asks again, by another connection.
func (e *Elector) patience() time.Duration {
	_, doubt := e.cfg.Clock.Now()
	return shortest/5 + min(2*doubt, longestTrips)
}

// awaitTurn waits until this worker should look again, and reports whether it was told to lead. A deputy looks when the lease ends, and
// any worker looks often until the lease is renewed that it has found.
func (e *Elector) awaitTurn(ctx context.Context, found int64) (told bool) {
	for till := found; ; {
		now, _ := e.cfg.Clock.Now()
		var timeout <-chan time.Time
		if e.deputy.Load() || till == found {
			wait := max(clock.Micros(till-now), 0)
			if till == found {
				wait = min(wait, Looks)
			}
			wait += e.cfg.Led.modesty()
			timeout = time.After(wait + time.Duration(rand.Int64N(int64(20*time.Millisecond))))
		}
		select {
		case <-ctx.Done():
			return false
		case told = <-e.told:
			if told {
				return true
			}
		case <-timeout:
		}
		meta, err := retry.Persist(ctx, e.patience(), e.cfg.Store.Meta)
		if err != nil {
			continue
		}
		till = meta.Till
		if now, _ := e.cfg.Clock.Now(); till <= now {
			return false
		}
	}
}
