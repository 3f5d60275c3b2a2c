package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/retry"
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
//  3. if it was let go of while a comparison was under way (gone): the reply may be from before;
//  4. if a comparison has brought it before (found): its message may come later, when the job has long
//     ended. Messages are that old at most [foundFor].
//
// A claim that a comparison does not find, and that was held before it began, is lost: another worker
// has it, or will. Its handler is told by its context; its end is told to nobody.
type Claims struct {
	w     *Worker
	ready chan struct{} // something has ended

	mu       sync.Mutex
	held     map[envelope.Claim]*held
	ended    []End
	since    time.Time // when the first of them ended
	returned map[envelope.Claim]returned
	asking   int                          // how many look what Redis holds
	gone     map[envelope.Claim]bool      // confirmed ends while somebody looks
	found    map[envelope.Claim]time.Time // claims that a look has brought, and when: they may come again
}

// held is a claim that is held.
type held struct {
	cancel context.CancelCauseFunc // of its handler; nil before the start
	over   bool                    // it has ended
	lost   bool                    // it is another worker's now
}

// returned is a claim that the leader was asked to take back.
type returned struct {
	letter store.Letter
	told   time.Time
}

// An end is a job that needs no more attempts.
type End struct {
	Claim   envelope.Claim
	Awaited bool // others wait for it
}

// newClaims returns the claims of a worker: none.
func newClaims(w *Worker) *Claims {
	return &Claims{w: w, ready: make(chan struct{}, 1), held: make(map[envelope.Claim]*held), returned: make(map[envelope.Claim]returned), gone: make(map[envelope.Claim]bool), found: make(map[envelope.Claim]time.Time)}
}

// hold takes a claim in, and reports whether it is new.
func (c *Claims) hold(claim envelope.Claim) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, found := c.found[claim]
	_, returned := c.returned[claim]
	if found || returned || c.held[claim] != nil || c.gone[claim] {
		return false
	}
	c.held[claim] = &held{}
	return true
}

// note remembers for those who are looking that a claim is gone.
func (c *Claims) note(claim envelope.Claim) {
	if c.asking > 0 {
		c.gone[claim] = true
	}
}

// starts reports whether a job may start: it does not if it was lost while it waited.
func (c *Claims) starts(claim envelope.Claim) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.held[claim]
	if h == nil || h.lost {
		delete(c.held, claim)
		c.note(claim)
		return false
	}
	return true
}

// begins notes that a handler starts; cancel is called if the claim is lost.
func (c *Claims) begins(claim envelope.Claim, cancel context.CancelCauseFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.held[claim]
	if h == nil {
		return
	}
	if h.cancel = cancel; h.lost {
		cancel(errLeaseLost)
	}
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

// giveUp notes that a claim is returned to the leader, by a letter.
func (c *Claims) giveUp(claim envelope.Claim, letter store.Letter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, claim)
	c.returned[claim] = returned{letter, time.Now()}
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
		if !h.lost {
			n++
		}
	}
	return n
}

// done notes that a job needs no more attempts.
func (c *Claims) done(e End) {
	c.mu.Lock()
	if h := c.held[e.Claim]; h != nil {
		h.over, h.cancel = true, nil
		if h.lost { // its end means nothing any more
			delete(c.held, e.Claim)
			c.mu.Unlock()
			return
		}
	}
	if len(c.ended) == 0 {
		c.since = time.Now()
	}
	if now := time.Now().Add(-AckDelay); e.Awaited && c.since.After(now) {
		c.since = now // it waits for no other ends
	}
	c.ended = append(c.ended, e)
	c.mu.Unlock()
	retry.Signal(c.ready)
}

// TakeEnds returns ends to be told; after trouble they are given back.
func (c *Claims) TakeEnds() []End {
	const batch = 500
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(batch, len(c.ended))
	taken := c.ended[:n:n]
	c.ended = c.ended[n:]
	return taken
}

// GiveBack takes back ends that could not be told.
func (c *Claims) GiveBack(ends []End) {
	if len(ends) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.ended) == 0 {
		c.since = time.Now()
	}
	c.ended = append(c.ended, ends...)
	retry.Signal(c.ready)
}

// Confirmed notes that Redis knows these ends.
func (c *Claims) Confirmed(ends []End) {
	for _, e := range ends {
		c.drop(e.Claim)
	}
}

// Due reports how many have ended, and since when the first waits to be told.
func (c *Claims) Due() (n int, age time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.ended) == 0 {
		return 0, 0
	}
	return len(c.ended), time.Since(c.since)
}

// AckDelay is how long an end waits for others, or for a commit, to be told with, and AckBatch how
// many of them wait at most.
const (
	AckDelay = 3 * time.Millisecond
	AckBatch = 20
)

// Ends are told in groups, since a script for each would cost Redis more than the job did:
//
//   - A worker that leads takes them along with its next commit, and asks for one if none comes.
//   - Another worker gathers them for [AckDelay], or until there are [AckBatch]. If half of its places are taken, it
//     gathers for a third of that time, since jobs may wait for places.
//   - An end that others wait for (the claim is Awaited, at a concurrency limit that is half full) gathers no others.
//
// Until Redis has confirmed an end the claim stays held, so that a comparison does not start it again.

// AckAll tells the ends that no commit took along, until ctx ends.
func (c *Claims) AckAll(ctx context.Context) {
	trouble := retry.NewTrouble(c.w.Log, "acknowledging")
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.ready:
		}
		for n, age := c.Due(); n > 0 && age < c.gathers() && (n < AckBatch || c.w.leading.Load() != nil); n, age = c.Due() {
			retry.Pause(ctx, c.gathers()-age)
			if ctx.Err() != nil {
				return
			}
		}
		if leader, leads := c.w.leader(); leads {
			leader.Kick()
			retry.Pause(ctx, AckDelay)
			if n, age := c.Due(); n > 0 && age < 10*AckDelay {
				retry.Signal(c.ready)
				continue
			}
		}
		for wait := trouble.After(c.send(ctx)); wait > 0 && ctx.Err() == nil; wait = trouble.After(c.send(ctx)) {
			retry.Pause(ctx, wait)
		}
	}
}

// gathers returns how long an end waits for others. Where the claims fill half of the worker's places,
// jobs may wait for them: then it is shorter, and nothing for a worker with few places.
func (c *Claims) gathers() time.Duration {
	const few = 16
	all := c.w.Places.All()
	switch {
	case 2*c.count() < all:
		return AckDelay
	case all < few:
		return 0
	}
	return AckDelay / 3
}

// send tells all ends.
func (c *Claims) send(ctx context.Context) error {
	for {
		ends := c.TakeEnds()
		if len(ends) == 0 {
			return nil
		}
		ack := store.Ack{Worker: c.w.Name}
		for _, e := range ends {
			ack.Claims = append(ack.Claims, e.Claim)
		}
		reading, err := retry.Persist(ctx, c.w.Patience(), func(ctx context.Context) (store.Reading, error) { return c.w.Store.Ack(ctx, ack) })
		if err != nil {
			c.GiveBack(ends)
			return err
		}
		c.w.Clock.Observe(reading)
		c.Confirmed(ends)
	}
}

// untold counts the ends that Redis has not confirmed, those included that are on their way.
func (c *Claims) untold() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.held {
		if h.over && !h.lost {
			n++
		}
	}
	return n
}

// flush tells the last ends of a worker that stops, and waits until Redis has confirmed those
// that are on their way. Jobs whose ends are not confirmed run again.
func (c *Claims) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lastPatience)
	defer cancel()
	err := c.send(ctx)
	for (err != nil || c.untold() > 0) && ctx.Err() == nil {
		retry.Pause(ctx, 10*time.Millisecond)
		err = c.send(ctx)
	}
	if n := c.untold(); n > 0 {
		c.w.Log.Error("could not acknowledge finished jobs: they will run again", "jobs", n, "err", err)
	}
}

// Reconcile compares what is held with what Redis says: it starts what it does not know
// and lets go of what it has lost.
func (c *Claims) Reconcile(ctx context.Context) error {
	c.mu.Lock()
	c.asking++
	before := make(map[envelope.Claim]bool, len(c.held))
	for claim := range c.held {
		before[claim] = true
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		if c.asking--; c.asking == 0 {
			clear(c.gone)
		}
		c.mu.Unlock()
	}()
	all, err := retry.Persist(ctx, c.w.Patience(), func(ctx context.Context) ([]store.Claimed, error) { return c.w.Store.Claimed(ctx, c.w.Name) })
	if err != nil {
		return err
	}
	there := make(map[envelope.Claim]bool, len(all))
	for _, claim := range all {
		there[claim.Claim] = true
		if c.w.Accept(Given{Claim: claim.Claim, Job: claim.Job}) {
			c.remember(claim.Claim)
			retry.Signal(c.w.missed)
		}
	}
	for claim := range before {
		if !there[claim] {
			c.lose(claim)
		}
	}
	for _, letter := range c.untaken(there) {
		c.w.tell(letter)
	}
	return nil
}

// returnAgain is after what time a claim is returned again that is still there: the letter may
// be lost.
const returnAgain = time.Second

// untaken returns the letters about returned claims that are to be written again. It lets go of
// the claims that are not there any more.
func (c *Claims) untaken(there map[envelope.Claim]bool) (letters []store.Letter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for claim, q := range c.returned {
		switch {
		case !there[claim]:
			delete(c.returned, claim)
			c.note(claim)
		case time.Since(q.told) >= returnAgain:
			c.returned[claim] = returned{q.letter, time.Now()}
			letters = append(letters, q.letter)
		}
	}
	return letters
}

// foundFor is how long a message with a claim may be on its way.
const foundFor = 5 * time.Minute

// remember notes a claim that a look has brought: the message that should have brought it
// may still come, when the job has long ended.
func (c *Claims) remember(claim envelope.Claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for old, at := range c.found {
		if time.Since(at) > foundFor {
			delete(c.found, old)
		}
	}
	c.found[claim] = time.Now()
}

// lose cancels the handler of a claim that is another worker's now.
func (c *Claims) lose(claim envelope.Claim) {
	c.mu.Lock()
	h := c.held[claim]
	var cancel context.CancelCauseFunc
	if h != nil && !h.over && !h.lost {
		cancel, h.lost = h.cancel, true
	}
	c.mu.Unlock()
	if cancel != nil {
		c.w.Log.Warn("lost the lease of a running job: it will run again elsewhere", "claim", claim)
		cancel(errLeaseLost)
	}
}
