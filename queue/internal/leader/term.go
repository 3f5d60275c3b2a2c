package leader

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
	"github.com/waterclock/waterclock/queue/internal/worker"
)

// A term is a time in which this worker leads the queue: it decides, and commits what it
// has decided. Everything it knows is a copy of what Redis holds; after any doubt it reads
// that again. Only the goroutine of its rounds touches it; kicks, hungry, batches and reports are
// how others reach that.
type term struct {
	w     *worker.Worker
	ctx   context.Context
	sched *schedule.Scheduler
	fleet fleet

	// How others reach the rounds.
	kicks   chan struct{} // something has happened in this worker
	hungry  atomic.Bool   // jobs wait for a place
	batches chan noticeBatch
	reports chan func(now int64) // what the work beside the rounds has found; see [term.report]

	// Commits.
	fence   store.Fence     // with which they are sent: the token, and what the term knows
	flights []*inflight     // under way, in their order
	inDoubt []*inflight     // sent, and nobody knows whether they happened
	spare   []*store.Commit // empty, to be used again
	renewed time.Time       // the last one
	wrote   time.Time       // the last one that did more than read

	// What the term was told.
	noticed  string           // the newest notice that was opened
	requests []request        // notices about claims, not yet settled in a commit
	full     map[string]bool  // tenants with more waiting than fits
	stale    bool             // policies, pauses or cancelled jobs have changed
	paused   map[string]int64 // scope → until when
	roomy    bool             // a job may start that could not at the last decision

	// What the next commit is to write.
	comebacks []comeback // jobs that come back into their lanes
	orders    []order    // for the mailboxes of workers

	// When to look at something, in µs of Redis's clock.
	ripeAt    int64  // something that waits for its time is due
	musterAt  int64  // who works
	unpauseAt int64  // pauses that have ended
	trimAt    int64  // notices that can be deleted
	trimmed   string // the newest notice through which they were deleted

	// The fleet, beside what is in fleet.
	deputies  []string // the workers that look after this leader
	nearest   *member  // of the deputies
	uncounted bool     // what runs was not read yet
	lateness  lateness

	// The work beside the rounds.
	workers  sync.WaitGroup
	governed int64                  // the version of the policies under which bounds were swept last
	sweeps   context.CancelFunc     // replaces the sweep under way
	trimmers map[string]*trimmer    // tenant → how its oldest jobs are found
	resting  bool                   // tenants are being forgotten
	broken   map[envelope.Lane]bool // lanes whose keys have another type
}

// The errors after which everything is read again, and by which a term ends.
var (
	errLapsed   = errors.New("queue: the leader's lease had run out")
	errStopping = errors.New("queue: the worker stops")
)

// The errors of a leader that is too slow and has a deputy, and of one that is much further
// from Redis than that.
var (
	errTired = errors.New("queue: the leader is short of CPU")
	errFar   = errors.New("queue: another worker is nearer to Redis")
)
