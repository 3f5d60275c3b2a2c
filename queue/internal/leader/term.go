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
// that again. Only the goroutine of its rounds touches it. Others reach that by kicks, batches and reports, and
// read hungry and busy.
type term struct {
	w *worker.Worker

	// ctx ends with the term. It is for the work beside the rounds.
	ctx context.Context

	// sched decides. A resync replaces it; nothing that it has returned before may be given to the new one.
	sched *schedule.Scheduler
	fleet fleet

	// How others reach the rounds.
	kicks   chan struct{}        // something has happened in this worker: look at once; it holds one kick
	hungry  atomic.Bool          // jobs wait for a place; the worker's jobs read it, and kick when they free one
	busy    atomic.Bool          // half of the places are taken, or more
	batches chan noticeBatch     // from the goroutine that reads the notices
	reports chan func(now int64) // what the work beside the rounds has found; see [term.report]

	// Commits.
	fence   store.Fence     // of the next one: the token, its number, and the number of changes that the term knows
	flights []*inflight     // under way, in their order
	inDoubt []*inflight     // sent, and it is unknown whether they happened: until the next token, or the end
	spare   []*store.Commit // empty, to be used again
	renewed time.Time       // when the last one was known to have happened
	wrote   time.Time       // the same, of the last one that did more than read
	worked  time.Time       // the same, of the last one with which a job started, ended or came back; at first when the term began

	// What the term was told.
	noticed  string             // the ID of the newest notice that was opened
	requests []request          // notices about claims, not yet settled in a commit
	full     map[string]bool    // tenants whose backlogs may be above their capacity: the next prelude looks
	stale    bool               // settings have changed: the next prelude reads them
	settled  atomic.Value       // the ID of the newest notice that a commit has noted; the reader trims up to there
	unsure   bool               // keys were repaired, or notices lost: the next round reads everything again
	paused   map[string]int64   // scope → until when; pauses that have ended stay until unpause
	policies *schedule.Policies // in force; nil for none
	roomy    bool               // a job may start that could not at the last decision: decide at once

	// What the next commit is to write.
	comebacks []comeback // jobs that come back into their lanes; collected and written by one amend
	orders    []order    // for the mailboxes of workers

	// Limits that other queues and callers spend, too.
	shared sharing

	// Places of limits that count jobs of other partitions, too.
	leases leases

	// When to look at something, in µs of Redis's clock; 0 for at once.
	ripeAt    int64 // the first job that waits for its time is due
	musterAt  int64 // who works
	unpauseAt int64 // pauses that have ended

	// The fleet, beside what is in fleet.
	deputies  []string // the names of the workers that watch this leader's lease; none: nobody would take over
	nearest   *member  // the deputy that knows Redis's clock best; nil for none
	uncounted bool     // the claims were not read since the scheduler was made
	lateness  lateness // whether this process gets enough CPU

	// The work beside the rounds.
	workers  sync.WaitGroup         // its goroutines: the term ends after them
	governed int64                  // schedule.Policies.Since of those under which bounds are swept, or were last
	sweeps   context.CancelFunc     // ends the sweep under way between two tenants
	trimmers map[string]*trimmer    // tenant → how its oldest jobs are found
	resting  bool                   // tenants are being forgotten: one such work at a time
	broken   map[envelope.Lane]bool // lanes, as of normal priority, of users whose keys may have another type
}

// The errors of a leader whose lease had run out, and of one whose worker stops.
var (
	// After errLapsed everything is read again, and the term goes on: offers wrote no notices while nobody led.
	errLapsed = errors.New("queue: the leader's lease had run out")
	// After errUnsure, too: indexes may have members that the scheduler would find no more, or of which it was not told.
	errUnsure = errors.New("queue: keys were repaired, or notices to the leader are lost")
	// errStopping ends the term, if there is a deputy.
	errStopping = errors.New("queue: the worker stops")
)

// The errors of a leader that is too slow, of one that is much further from Redis than a deputy, and of one that leads more partitions than
// others. They end the term, if there is a deputy: see [term.fit].
var (
	errExcess = errors.New("queue: other workers lead fewer partitions")

	errTired = errors.New("queue: the leader is short of CPU")
	errFar   = errors.New("queue: another worker is nearer to Redis")
)
