package notify

import (
	"errors"
	"time"
)

// A worker that has no way out reaches no provider: its network is broken, or a policy forbids it. Nothing that it tries says
// anything about providers and endpoints, and another worker may reach them all. So it has a breaker of its own, beside those of
// its routes: the evidence is a row of messages, whatever their routes, that reached nobody, while no answer came from anywhere.
//
// While it is suspended, a message is sent on to another worker ([queue.SendOn]), and the queue gives this one no others, as long
// as others have places. When the time is over one message probes it. A message that was sent on before is attempted all the
// same, so a provider that nobody reaches is found out by all workers, as it would be by one.

// noWayOut returns for how long messages are to be sent on, 0 if they are to be attempted; and whether this one probes.
func (bs *breakers) noWayOut(now time.Time) (wait time.Duration, probe bool) {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	b := &bs.wayOut
	switch {
	case b.until.After(now):
		return b.until.Sub(now), false
	case b.until.IsZero():
		return 0, false
	case b.probing:
		return probeWait, false
	}
	b.probing = true
	return 0, true
}

// wentOut notes what a message has shown of the way out, by the results of its devices. It returns for how long messages are to be
// sent on, and whether that was found out just now.
func (bs *breakers) wentOut(message string, results []result, begun, now time.Time, probe bool) (wait time.Duration, began bool) {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	b := &bs.wayOut
	if probe {
		b.probing = false
	}
	unreached := false
	for _, r := range results {
		if r.reached {
			*b = breaker{guard: guard{last: now}}
			return 0, false
		}
		unreached = unreached || r.unreached
	}
	if !unreached {
		return 0, false
	}
	began = b.fail(event{finding: fails, witness: message, begun: begun}, now, probe)
	return max(0, b.until.Sub(now)), began
}

// unreached reports whether an outcome says that nobody was reached.
func (o Outcome) unreached() bool { return o.Action == Retry && !o.answered() }

// answered reports whether it says that somebody was.
func (o Outcome) answered() bool {
	var provider *ProviderError
	return o.Reached || errors.As(o.Err, &provider)
}
