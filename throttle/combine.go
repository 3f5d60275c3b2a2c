package throttle

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
)

// A call is a request on its way to a decision.
type call struct {
	request
	decision Decision
	err      error
	done     chan struct{} // closed when there is a decision or an error
}

func (c *call) fail(err error) {
	c.decision = Decision{}
	c.err = fmt.Errorf("throttle: deciding in Redis: %w", err)
}

// fields is how many numbers decide.lua replies to each request.
const fields = 7

// decode reads the reply of decide.lua to one request.
func (c *call) decode(now any, reply []any) {
	var numbers [fields]int64
	for i, field := range reply {
		n, ok := field.(int64)
		if !ok {
			c.fail(fmt.Errorf("%v", field))
			return
		}
		numbers[i] = n
	}
	at, _ := now.(int64)
	found := ruling{now: at, remaining: int(numbers[1]), slot: numbers[2], full: numbers[3], next: numbers[5]}
	found.outcome, found.binding = whom(numbers[0])
	_, found.objector = whom(numbers[4])
	found.taken = numbers[6] == 1
	c.decision, c.err = c.request.decision(found)
}

// whom unpacks what whom in decide.lua packs.
func whom(n int64) (outcome Outcome, of place) {
	return Outcome(n % 4), place{int(n/4%65536) - 1, int(n/4/65536) - 1}
}

// A combiner lets callers that come at the same time share a round trip: while as many
// batches as may be are under way, the others gather and go together as soon as one is
// back. Nobody waits for company, and who comes alone goes alone.
type combiner struct {
	run     func(ctx context.Context, calls []*call)
	flights int // how many batches may be under way; 0 lets every call go by itself

	mu      sync.Mutex
	flying  int
	waiting []*call
}

func (c *combiner) decide(ctx context.Context, r request) (Decision, error) {
	if err := ctx.Err(); err != nil {
		return Decision{}, fmt.Errorf("throttle: deciding in Redis: %w", err)
	}
	asked := &call{request: r}
	if c.board(asked) {
		defer c.land(ctx) // also when a hook of the client panics
		c.run(ctx, []*call{asked})
		return asked.decision, asked.err
	}
	select {
	case <-asked.done:
		return asked.decision, asked.err
	case <-ctx.Done():
		c.leave(asked)
		return Decision{}, fmt.Errorf("throttle: deciding in Redis: %w", ctx.Err())
	}
}

// board reports whether the call may go at once. If not, it waits for the next batch.
func (c *combiner) board(asked *call) bool {
	if c.flights == 0 {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flying < c.flights {
		c.flying++
		return true
	}
	asked.done = make(chan struct{})
	c.waiting = append(c.waiting, asked)
	return false
}

// land ends a flight. If calls have gathered, another takes its place.
func (c *combiner) land(ctx context.Context) {
	if c.flights == 0 {
		return
	}
	if next := c.gather(); next != nil {
		// They are not the caller's: its end is not theirs.
		go c.fly(context.WithoutCancel(ctx), next)
	}
}

// fly sends one batch after the other until nobody waits any more.
func (c *combiner) fly(ctx context.Context, calls []*call) {
	for ; calls != nil; calls = c.gather() {
		c.run(ctx, calls)
		for _, asked := range calls {
			close(asked.done)
		}
		// Those who were answered often ask again at once: let them, so that the next
		// batch takes all and not every other half.
		runtime.Gosched()
	}
}

// gather returns those who wait, or ends the flight if nobody does.
func (c *combiner) gather() []*call {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		c.flying--
		return nil
	}
	n := min(len(c.waiting), batchSize)
	calls := slices.Clone(c.waiting[:n])
	c.waiting = slices.Delete(c.waiting, 0, n)
	return calls
}

// leave takes back a call that has not been sent.
func (c *combiner) leave(asked *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.waiting, asked); i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
	}
}
