package worker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// errLeaseLost is the cause of a handler's cancelled context when its job was taken back.
var errLeaseLost = errors.New("queue: the lease was lost; the job belongs to another worker")

// Claims are what a worker holds: jobs that wait for their slot or run, and those that have ended and
// whose end Redis has not confirmed.
//
// The same claim can come twice: in a message to the worker, and by a comparison with Redis
// ([Claims.Reconcile]), which finds the claims whose messages were lost. It must start once. A
// comparison is old when its reply arrives, and a message can be older than a comparison. So a claim
// is not started
//
//  1. while it is held: it runs, or its end is on its way to Redis;
//  2. while it is returned: the leader has not taken it back yet, and Redis still holds it;
//  3. if it was let go of while a comparison was under way (endedMeanwhile): the reply may be from before;
//  4. if a message brings it, and a comparison has brought it before (compared): the job may have long ended. Messages are
//     that old at most [foundFor]. What a comparison brings again is there: a replica may have taken over that had not heard of
//     the end.
//
// A claim that a comparison does not find, and that was held before it began, is lost: another worker
// has it, or will. Its handler is told by its context; its end is told to nobody.
//
// Any goroutine may call the methods; mu guards all fields below it.
type Claims struct {
	w       *Worker
	ready   chan struct{} // something has ended
	hurry   chan struct{} // what has ended is to be told soon
	telling background    // of claims that the leader has not taken back

	mu             sync.Mutex
	held           map[envelope.Claim]*held
	ended          []End
	since          time.Time // when the first of them ended
	patient        bool      // they wait for others, for longer than in a hurry
	returned       map[envelope.Claim]returned
	comparisons    int                          // under way
	endedMeanwhile map[envelope.Claim]bool      // let go of while a comparison is under way
	compared       map[envelope.Claim]time.Time // brought by a comparison, and when: a message may come later
}

// held is a claim that is held. It goes from waiting (the zero value) to running (started) to over; it may be lost
// before it is over.
type held struct {
	cancel  context.CancelCauseFunc // of its handler's context; nil until its job is read, and when it is over
	started atomic.Bool             // its handler has begun, or is about to. A start takes no lock (job.go)
	lost    atomic.Bool             // it is another worker's now; a start looks at it without the lock
	over    bool                    // it has ended
}

// returned is a claim that the leader was asked to take back. Redis has it until the leader has done so.
type returned struct {
	notice store.Notice // to be written again if it was lost
	told   time.Time    // when it was written last
}

// newClaims returns the claims of a worker that holds nothing yet.
func newClaims(w *Worker) *Claims {
	return &Claims{w: w, ready: make(chan struct{}, 1), hurry: make(chan struct{}, 1), held: make(map[envelope.Claim]*held), returned: make(map[envelope.Claim]returned), endedMeanwhile: make(map[envelope.Claim]bool), compared: make(map[envelope.Claim]time.Time)}
}

// hold takes a claim in that a message has brought, or a comparison, and reports whether it is new: the four conditions above in one look.
func (c *Claims) hold(claim envelope.Claim, compared bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, found := c.compared[claim]
	_, returned := c.returned[claim]
	if found && !compared || returned || c.held[claim] != nil || c.endedMeanwhile[claim] {
		return false
	}
	c.held[claim] = &held{}
	return true
}

// note remembers for comparisons that are under way that a claim was let go of. The caller has the lock.
func (c *Claims) note(claim envelope.Claim) {
	if c.comparisons > 0 {
		c.endedMeanwhile[claim] = true
	}
}

// opened notes that a claim's job waits for its slot; cancel is called if the claim is lost from now on, before its
// handler begins or after. If it is lost already it is let go of, nothing has to be told, and nil is returned.
func (c *Claims) opened(claim envelope.Claim, cancel context.CancelCauseFunc) *held {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.held[claim]
	if h == nil || h.lost.Load() {
		delete(c.held, claim)
		c.note(claim)
		return nil
	}
	h.cancel = cancel
	return h
}

// drop lets go of a claim whose end Redis knows.
func (c *Claims) drop(claims ...envelope.Claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, claim := range claims {
		delete(c.held, claim)
		delete(c.returned, claim)
		c.note(claim)
	}
}

// giveUp notes that a claim is returned to the leader, by a notice. It is called before the notice is written: a
// comparison in between must not start the claim again.
func (c *Claims) giveUp(claim envelope.Claim, notice store.Notice) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, claim)
	c.returned[claim] = returned{notice, time.Now()}
	c.note(claim)
}

// returning returns how many claims the leader has not taken back yet.
func (c *Claims) returning() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.returned)
}

// count returns how many claims this worker has, as far as it knows: those that wait, run, or have ended without a
// confirmation. A beat compares it with what Redis says.
func (c *Claims) count() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.held {
		if !h.lost.Load() {
			n++
		}
	}
	return n
}

// An End is the end of a claim whose job needs no more attempts.
type End struct {
	Claim   envelope.Claim
	Awaited bool // other jobs may wait for it: it is told at once
}
