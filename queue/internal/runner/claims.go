package runner

import (
	"context"
	"errors"
	"sync"
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
// ([claims.reconcile]), which finds the claims whose messages were lost. It must start once. A
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
type claims struct {
	r     *Runner
	ready chan struct{} // something has ended

	mu       sync.Mutex
	held     map[envelope.Claim]*held
	ended    []end
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
type end struct {
	claim   envelope.Claim
	awaited bool // others wait for it
}

func newClaims(r *Runner) *claims {
	return &claims{r: r, ready: make(chan struct{}, 1), held: make(map[envelope.Claim]*held), returned: make(map[envelope.Claim]returned), gone: make(map[envelope.Claim]bool), found: make(map[envelope.Claim]time.Time)}
}

// hold takes a claim in, and reports whether it is new.
func (c *claims) hold(claim envelope.Claim) bool {
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
func (c *claims) note(claim envelope.Claim) {
	if c.asking > 0 {
		c.gone[claim] = true
	}
}

// starts reports whether a job may start: it does not if it was lost while it waited.
func (c *claims) starts(claim envelope.Claim) bool {
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
func (c *claims) begins(claim envelope.Claim, cancel context.CancelCauseFunc) {
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
func (c *claims) drop(claims ...envelope.Claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, claim := range claims {
		delete(c.held, claim)
		delete(c.returned, claim)
		c.note(claim)
	}
}

// giveUp notes that a claim is returned to the leader, by a letter.
func (c *claims) giveUp(claim envelope.Claim, letter store.Letter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, claim)
	c.returned[claim] = returned{letter, time.Now()}
	c.note(claim)
}

func (c *claims) returning() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.returned)
}

func (c *claims) count() (n int) {
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
func (c *claims) done(e end) {
	c.mu.Lock()
	if h := c.held[e.claim]; h != nil {
		h.over, h.cancel = true, nil
		if h.lost { // its end means nothing any more
			delete(c.held, e.claim)
			c.mu.Unlock()
			return
		}
	}
	if len(c.ended) == 0 {
		c.since = time.Now()
	}
	if now := time.Now().Add(-ackDelay); e.awaited && c.since.After(now) {
		c.since = now // it waits for no other ends
	}
	c.ended = append(c.ended, e)
	c.mu.Unlock()
	signal(c.ready)
}

// take returns ends to be told; after trouble they are given back.
func (c *claims) take() []end {
	const batch = 500
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(batch, len(c.ended))
	taken := c.ended[:n:n]
	c.ended = c.ended[n:]
	return taken
}

func (c *claims) giveBack(ends []end) {
	if len(ends) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.ended) == 0 {
		c.since = time.Now()
	}
	c.ended = append(c.ended, ends...)
	signal(c.ready)
}

func (c *claims) confirmed(ends []end) {
	for _, e := range ends {
		c.drop(e.claim)
	}
}

// due reports how many have ended, and since when the first waits to be told.
func (c *claims) due() (n int, age time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.ended) == 0 {
		return 0, 0
	}
	return len(c.ended), time.Since(c.since)
}

// ackDelay is how long an end waits for others, or for a commit, to be told with.
const ackDelay = 3 * time.Millisecond

// ackAll tells the ends that no commit took along, until ctx ends.
func (c *claims) ackAll(ctx context.Context) {
	trouble := newTrouble(c.r.log, "acknowledging")
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.ready:
		}
		for n, age := c.due(); n > 0 && age < ackDelay && !c.full() && (n < 20 || c.r.leading.Load() != nil); n, age = c.due() {
			pause(ctx, ackDelay-age)
			if ctx.Err() != nil {
				return
			}
		}
		if t := c.r.leading.Load(); t != nil {
			t.kick()
			pause(ctx, ackDelay)
			if n, age := c.due(); n > 0 && age < 10*ackDelay {
				signal(c.ready)
				continue
			}
		}
		for wait := trouble.after(c.send(ctx)); wait > 0 && ctx.Err() == nil; wait = trouble.after(c.send(ctx)) {
			pause(ctx, wait)
		}
	}
}

// full reports whether the claims fill half of the worker's places: jobs may wait for them.
func (c *claims) full() bool { return 2*c.count() >= c.r.places.all() }

// send tells all ends.
func (c *claims) send(ctx context.Context) error {
	for {
		ends := c.take()
		if len(ends) == 0 {
			return nil
		}
		ack := store.Ack{Worker: c.r.cfg.Worker}
		for _, e := range ends {
			ack.Claims = append(ack.Claims, e.claim)
		}
		reading, err := persist(ctx, c.r.patience(), func(ctx context.Context) (store.Reading, error) { return c.r.store.Ack(ctx, ack) })
		if err != nil {
			c.giveBack(ends)
			return err
		}
		c.r.clock.observe(reading)
		c.confirmed(ends)
	}
}

// untold counts the ends that Redis has not confirmed, those included that are on their way.
func (c *claims) untold() (n int) {
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
func (c *claims) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lastPatience)
	defer cancel()
	err := c.send(ctx)
	for (err != nil || c.untold() > 0) && ctx.Err() == nil {
		pause(ctx, 10*time.Millisecond)
		err = c.send(ctx)
	}
	if n := c.untold(); n > 0 {
		c.r.log.Error("could not acknowledge finished jobs: they will run again", "jobs", n, "err", err)
	}
}

// reconcile compares what is held with what Redis says: it starts what it does not know
// and lets go of what it has lost.
func (c *claims) reconcile(ctx context.Context) error {
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
	all, err := persist(ctx, c.r.patience(), func(ctx context.Context) ([]store.Claimed, error) { return c.r.store.Claimed(ctx, c.r.cfg.Worker) })
	if err != nil {
		return err
	}
	there := make(map[envelope.Claim]bool, len(all))
	for _, claim := range all {
		there[claim.Claim] = true
		if c.r.accept(given{claim: claim.Claim, job: claim.Job}) {
			c.remember(claim.Claim)
			signal(c.r.missed)
		}
	}
	for claim := range before {
		if !there[claim] {
			c.lose(claim)
		}
	}
	for _, letter := range c.untaken(there) {
		c.r.tell(letter)
	}
	return nil
}

// returnAgain is after what time a claim is returned again that is still there: the letter may
// be lost.
const returnAgain = time.Second

// untaken returns the letters about returned claims that are to be written again. It lets go of
// the claims that are not there any more.
func (c *claims) untaken(there map[envelope.Claim]bool) (letters []store.Letter) {
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
func (c *claims) remember(claim envelope.Claim) {
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
func (c *claims) lose(claim envelope.Claim) {
	c.mu.Lock()
	h := c.held[claim]
	var cancel context.CancelCauseFunc
	if h != nil && !h.over && !h.lost {
		cancel, h.lost = h.cancel, true
	}
	c.mu.Unlock()
	if cancel != nil {
		c.r.log.Warn("lost the lease of a running job: it will run again elsewhere", "claim", claim)
		cancel(errLeaseLost)
	}
}
