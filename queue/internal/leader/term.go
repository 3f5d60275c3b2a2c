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
	w      *worker.Worker
	ctx    context.Context
	kicks  chan struct{} // something has happened in this worker
	hungry atomic.Bool   // jobs wait for a place

	fence    store.Fence // with which commits are sent: the token, and what the term knows
	noticed  string      // the newest notice that was opened
	batches  chan noticeBatch
	reports  chan func(now int64) // what the work beside the rounds has found; see [term.report]
	sweeps   context.CancelFunc   // ends the sweep under way
	workers  sync.WaitGroup       // the work beside the rounds
	renewed  time.Time            // the last commit
	wrote    time.Time            // the last one that did more than read
	sched    *schedule.Scheduler
	fleet    fleet
	paused   map[string]int64 // scope → until when
	stale    bool             // policies, pauses or cancelled jobs have changed
	governed int64            // the version of the policies under which bounds were swept last

	requests  []request           // notices about claims, not yet settled in a commit
	comebacks []comeback          // of the commit that is being made
	orders    []order             // for the mailboxes of workers
	full      map[string]bool     // tenants with more waiting than fits
	trimmers  map[string]*trimmer // tenant → how its oldest jobs are found
	resting   bool                // tenants are being forgotten
	deputies  []string            // the workers that look after this leader
	nearest   *member             // of the deputies
	uncounted bool                // what runs was not read yet
	roomy     bool                // a job may start that could not at the last decision
	ripeAt    int64               // when something that waits for its time is due
	musterAt  int64               // when to look who works
	trimAt    int64               // when to trim the notices
	unpauseAt int64               // when to look for pauses that have ended
	trimmed   string              // the newest notice through which they were trimmed
	lateness  lateness
	flights   []*inflight            // commits under way, in their order
	inDoubt   []*inflight            // sent, and nobody knows whether they happened
	spare     []*store.Commit        // empty, to be used again
	broken    map[envelope.Lane]bool // their keys have another type
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
