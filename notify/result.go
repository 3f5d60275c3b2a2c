package notify

import (
	"math/rand/v2"
	"time"

	"github.com/waterclock/waterclock/queue"
)

// A fate is what became of one device in an attempt.
type fate int

const (
	delivered    fate = iota + 1
	unregistered      // it is gone
	rejected          // it can never get this message
	replaced          // a newer message with the same collapse key was sent to it
	retried           // it failed, and is attempted again
	held              // it was not tried, or asked for time: that is no attempt
	later             // its next attempt is not due
	exhausted         // it has had all of its attempts
)

// A result is a device's part in an attempt.
type result struct {
	fate fate
	err  error         // why; nil if delivered
	saw  bool          // the user may have seen something of this attempt
	wait time.Duration // if retried, held or later: not before
	hold hold          // if held: by what

	reached   bool // somebody has answered
	unreached bool // it was tried, and nobody was reached

	route route // if retried or later: through which it failed
	doubt bool  // if retried: a wrong configuration is the likely reason
}

// An ending is what becomes of the job.
type ending int

const (
	done  ending = iota
	retry        // a failed attempt, repeated later
	wait         // back to the front of its lane; no attempt counts
	dead
)

// A verdict on a job sums up its devices:
//
//	some failed, or are due later       retry: for those, each in its time (schedule.go)
//	all of them are held                wait: those who go there, see [handler.pause]
//	some are held, the others settled   retry: the user's next messages must not wait;
//	some have had all their attempts    dead: it may be revived for those
//	some were delivered                 done
//	all of them were rejected or gone   dead if one was rejected, else done: nobody is there
//	a newer message replaced it         as if that device was gone
type verdict struct {
	ending ending
	err    error
	wait   time.Duration
	key    string        // wait: for the value of this key of the job; "" if its devices wait for different things
	whole  bool          // wait: everything waits, not only the user
	spread time.Duration // more, at random: others wait for the same instant
	refund bool          // the user saw nothing, or had seen the message before
	yields bool          // retry: the user has the message on a device; the rest can wait for other messages

	least     time.Duration // retry: if there is a wait, it is not shorter
	uncounted bool          // retry: it is no failed attempt of the job

	elsewhere time.Duration // retry, wait: another worker is to have it, and this one nothing for so long; 0 if not
}

// delay is how long the message waits. What waits for a suspended route comes back spread
// out: together the messages would take the tenant's leak for a time, only to be turned
// away again.
func (v verdict) delay() time.Duration {
	if v.spread <= 0 {
		return v.wait
	}
	return v.wait + rand.N(v.spread)
}

// patience is the least time until the next attempt after the n-th. It grows as a worker's
// default RetryDelay does: a provider that asks for little time again and again would use up the
// attempts of a message within minutes.
func patience(n int) time.Duration {
	const longest, doublings = 10 * time.Minute, 10
	delay := min(longest, time.Second<<min(max(0, n-1), doublings))
	return delay/2 + rand.N(delay)
}

// restWait is how long a message waits for a place for the rest of its devices: each look
// takes a slot of the tenant's.
const restWait = defaultTimeout

// sumUp draws the verdict from the results of all devices.
func sumUp(results []result, s settled) verdict {
	by := make(map[fate][]result)
	saw := false
	for i, r := range results {
		by[r.fate] = append(by[r.fate], r)
		_, before := s.devices[i]
		saw = saw || r.saw && !before
	}
	v := verdict{refund: s.seen || !saw}
	waits := by[held]
	switch {
	case len(by[retried])+len(by[later]) > 0:
		again := append(by[retried], by[later]...)
		v.ending, v.err = retry, again[0].err
		for _, r := range again {
			v.wait = max(v.wait, r.wait)
		}
	case len(waits) > 0:
		v.ending, v.err, v.wait = wait, waits[0].err, longestWait
		v.key, v.whole = waits[0].hold.key, true
		for _, r := range waits {
			if r.hold.busy && len(waits) < len(results) {
				r.wait = restWait
			}
			v.wait, v.spread = min(v.wait, r.wait), max(v.spread, r.hold.spread)
			v.whole = v.whole && r.hold.suspended && !r.hold.local
			if r.hold.key != v.key {
				v.key = ""
			}
		}
		if len(waits) < len(results) {
			v.ending, v.wait = retry, max(v.wait, time.Second)
		}
	case len(by[exhausted]) > 0:
		v.ending, v.err = dead, by[exhausted][0].err
	case len(by[delivered]) > 0:
	case len(by[rejected]) > 0:
		v.ending, v.err = dead, by[rejected][0].err
	case len(by[unregistered]) > 0:
		v.err = by[unregistered][0].err
	case len(by[replaced]) > 0:
		v.err = by[replaced][0].err
	}
	return v
}

// again is the verdict of a failed attempt. Without a wait the worker's RetryDelay says when the
// next one comes.
func (v verdict) again() error {
	again := queue.Retry{Yield: v.yields, Uncounted: v.uncounted, Cause: v.err}
	if v.wait > 0 {
		again.After = max(v.delay(), v.least)
	}
	if again == (queue.Retry{Cause: v.err}) {
		return v.err
	}
	return again
}
