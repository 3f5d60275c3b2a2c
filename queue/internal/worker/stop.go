package worker

import (
	"context"
	"time"

	"github.com/waterclock/waterclock/queue/internal/retry"
)

// A worker stops in this order (package runner, Run):
//
//  1. Nothing starts any more: claims whose slot has not come are returned, and the leader's own jobs that are decided
//     from then on come back at once (Shutdown).
//  2. Handlers have ShutdownTimeout to end. Then their contexts are cancelled: an attempt that ends by that does
//     not count.
//  3. The last ends are told, and the leader has taken the returned claims back.
//  4. It leads no more; it beats no more; it leaves the fleet (Leave).
//
// So a stop costs nobody an attempt, and leaves nothing to be reaped, unless Redis is away.

// lastPatience bounds every wait of a worker that stops, after ShutdownTimeout.
const lastPatience = 5 * time.Second

// A worker that only leaves its queue, while its program goes on, does the same. Its handlers have as much time as they need, until the
// program stops.

// LongestStop is how long the worker takes to stop, at most, where Redis is away.
func (w *Worker) LongestStop() time.Duration { return w.cfg.ShutdownTimeout + 2*lastPatience }

// Shutdown hands back what has not started, waits for the handlers, and cancels those that take too long after ctx has ended. It returns
// when all ends are told and the leader has taken back what was returned, or after the patience for each. The worker
// must go on to beat, to take messages and, if it leads, to lead: only so its claims are taken back.
func (w *Worker) Shutdown(ctx context.Context) {
	w.gate.Lock()
	close(w.stop)
	w.gate.Unlock()
	if leader, leads := w.leader(); leads {
		leader.Kick() // if others can lead, one does
	}
	ended := make(chan struct{})
	go func() {
		w.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	if !endsWithin(ended, w.cfg.ShutdownTimeout) {
		w.Log.Warn("handlers run on after the shutdown timeout; cancelling them",
			"jobs", w.Claims.count(), "timeout", w.cfg.ShutdownTimeout)
		w.kill()
		if w.behind = !endsWithin(ended, lastPatience); w.behind {
			w.Log.Error("leaving handlers behind that ignore the end of their context; their jobs will run again",
				"jobs", w.Claims.count())
		}
	}
	w.Claims.flush(w.outlive)
	w.awaitReturns()
}

// endsWithin waits until something has ended, for a time at most, and reports whether it has.
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

// awaitReturns waits until the leader has taken back what this worker has returned: until Redis has no more claims of
// this worker than those that it holds.
func (w *Worker) awaitReturns() {
	ctx, cancel := context.WithTimeout(w.outlive, lastPatience)
	defer cancel()
	for w.Claims.returning() > 0 && ctx.Err() == nil {
		left, err := w.Store.Claims(ctx, []string{w.Name})
		if err == nil && len(left) <= w.Claims.count() {
			return
		}
		retry.Pause(ctx, 2*time.Millisecond)
	}
	if ctx.Err() != nil {
		w.Log.Warn("jobs that were not started return when this worker's lease expires", "jobs", w.Claims.returning())
	}
}

// Leave takes the worker out of the fleet, unless it leaves jobs behind. What was on its way to this worker is
// returned meanwhile.
func (w *Worker) Leave() {
	ctx, cancel := context.WithTimeout(w.outlive, lastPatience)
	defer cancel()
	left, err := w.Store.Leave(ctx, w.Name)
	for ; !left && ctx.Err() == nil && !w.behind; left, err = w.Store.Leave(ctx, w.Name) {
		retry.Pause(ctx, 5*time.Millisecond)
		w.compare(ctx) // something on its way here goes back first
	}
	if err != nil {
		w.Log.Debug("leaving the fleet", "err", err)
	}
	w.Places.Close()
}
