package notify

import (
	"context"
	"errors"
	"time"

	"github.com/waterclock/waterclock/queue"
)

// The devices of a message have schedules of their own: one that fails for hours, as a webhook may, does not delay the
// others. The ledger keeps how often each has failed, and when its next attempt is due. The job comes back when the first
// of them is due, and an attempt passes over the devices that are not (later).
//
// The job counts as many failed attempts as the device that has failed most often. So an attempt in which only other
// devices have failed is not counted, and each device has as many attempts as the job. A device that has had them
// all (exhausted) gets no more; the job is dead when the other devices need no attempt either.
//
// Without a ledger the devices share one schedule, the slowest.

var (
	errLater     = errors.New("notify: the next attempt at the device is due later")
	errExhausted = errors.New("notify: all attempts at the device have failed")
)

// attemptOf returns the number of the attempt at a device that this one is, or would be.
func (d *delivery) attemptOf(device int) int {
	if len(d.targets) > 1 && d.ledger.keeps(d.info) {
		return d.settled.failed[device].n + 1
	}
	return d.info.Attempt
}

type attemptKey struct{}

// withAttempt returns a context in which an attempt at a device has that number.
func withAttempt(ctx context.Context, n int) context.Context {
	return context.WithValue(ctx, attemptKey{}, n)
}

// attemptFrom returns the number of an attempt at a device, of the job outside of a delivery.
func attemptFrom(ctx context.Context) int {
	if n, ok := ctx.Value(attemptKey{}).(int); ok {
		return n
	}
	info, _ := queue.FromContext(ctx)
	return info.Attempt
}

// notDue returns why nothing is sent to a device now, although it needs the message, and false if an attempt is due.
func (d *delivery) notDue(ctx context.Context, device int, r route) (result, bool) {
	f := d.settled.failed[device]
	if f.n > 0 && f.n >= d.info.MaxAttempts {
		return result{fate: exhausted, err: errExhausted}, true
	}
	if wait := f.due.Sub(clockNow(ctx)); wait > 0 {
		return result{fate: later, err: errLater, wait: wait, route: r}, true
	}
	return result{}, false
}

// exhaust ends the attempts at the devices that have failed now, and had no attempt left.
func (d *delivery) exhaust(results []result) {
	for device, r := range results {
		if r.fate == retried && d.attemptOf(device) >= d.info.MaxAttempts {
			results[device].fate = exhausted
		}
	}
}

// plan gives each device that was attempted or held the instant of its next attempt, and the job the first of them.
// Devices whose instants are near each other are attempted together: each attempt of the job takes a slot of the tenant's.
// If no provider asks for time, the worker's RetryDelay decides for all of them.
func (d *delivery) plan(ctx context.Context, v verdict, results []result) verdict {
	if !d.ledger.keeps(d.info) {
		return v
	}
	now, delays := clockNow(ctx), make(map[int]time.Duration) // by the number of failures: equal ones stay together
	failed, waits, most, asked := make(map[int]failures), []time.Duration{}, 0, false
	for device, r := range results {
		n := d.attemptOf(device)
		if delays[n] == 0 {
			delays[n] = patience(n)
		}
		switch r.fate {
		case later:
			asked, waits = true, append(waits, r.wait)
		case retried, held:
			asked = asked || r.wait > 0
			if r.hold.busy {
				r.wait = restWait
			}
			wait := max(r.wait, delays[n])
			failed[device], waits = failures{n, now.Add(wait)}, append(waits, wait)
			if n < d.info.MaxAttempts {
				most = max(most, n)
			}
		case exhausted:
			failed[device] = failures{d.info.MaxAttempts, now}
		}
	}
	v.least, v.uncounted, v.wait = 0, most < d.info.Attempt, 0
	if asked {
		v.wait = together(waits)
	} else {
		for device, f := range failed {
			failed[device] = failures{f.n, now}
		}
	}
	if err := d.ledger.plan(ctx, d.info, failed); err != nil {
		v.uncounted = false // the next attempt would not know of this one
		d.cfg.Logger.WarnContext(ctx, "devices of a message may be attempted too early", "id", d.info.ID, "err", err)
	}
	return v
}

// together returns the last of the waits that are at most a quarter longer than the shortest.
func together(waits []time.Duration) time.Duration {
	first, last := waits[0], time.Duration(0)
	for _, wait := range waits {
		first = min(first, wait)
	}
	for _, wait := range waits {
		if wait <= first+first/4 {
			last = max(last, wait)
		}
	}
	return last
}
