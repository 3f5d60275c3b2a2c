package runner

import "math"

// A leak with a ramp begins with a tenth of its rate when it has stood still for longer than the ramp takes, and its rate grows evenly to
// the whole meanwhile. It stands still from the instant on at which the next job could have started.
//
// What the judge does not know for certain it takes in two ways. What has to start by now is asked of a ramp that may have begun anew;
// what starts too early, of one that did so for certain.

// share returns what a ramp lets through until x µs after its beginning, in µs of the whole rate.
func (n norm) share(x float64) float64 {
	long := float64(n.ramp)
	grown := min(x, long)
	atEnd := 0.1 + 0.9*grown/long // of the rate
	return grown*(0.1+atEnd)/2 + max(0, x-long)
}

// after returns when the next job may start behind one with that slot, in a ramp that began at an instant.
func (n norm) after(began, slot, cost int64) int64 {
	each := float64(n.period) / float64(n.n) * float64(cost)
	if began == long {
		return slot + int64(math.Ceil(each))
	}
	want := n.share(float64(slot-began)) + each
	low, high := slot, slot+int64(10*each)+1
	for low < high {
		if middle := (low + high) / 2; n.share(float64(middle-began)) < want {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// long stands for a ramp that is over.
const long = math.MinInt64

// stepsOfRedis is by how much Redis's clock has been moved in all, about.
const stepsOfRedis = 2_000_000

// firstOfRamp returns from when on a ramp certainly admits a start.
func (n norm) firstOfRamp(l *ledger, at int64) int64 {
	began, turn, last := int64(long), int64(0), spend{}
	still := n.ramp - wider
	if l.moved {
		still -= stepsOfRedis
	}
	for i, s := range bySlot(l.starts) {
		since := turn
		if last.gone > 0 || last.phantom || last.unseen {
			since = last.slot
		}
		if i == 0 || s.slot > since+still || last.slot < l.muddled && l.muddled <= s.slot {
			began = s.slot
		}
		turn, last = max(turn, n.after(began, s.slot, s.cost)), s
	}
	return max(at, turn+1)
}

// rushed returns by how much a start comes too early for a ramp.
func (n norm) rushed(l *ledger, s spend, user bool) int64 {
	began, turn, latest := int64(long), int64(0), int64(math.MaxInt64)
	still := n.ramp + wider
	if l.moved {
		still += stepsOfRedis
	}
	for _, o := range bySlot(l.starts) {
		certain := !o.phantom && (!user || !o.unseen) && !l.before(o)
		if o.slot > s.slot {
			if certain && n.after(long, s.slot, s.least) > o.slot+1 {
				return n.after(long, s.slot, s.least) - o.slot
			}
			continue
		}
		if latest < math.MaxInt64 && o.slot > latest+still {
			began = o.slot
		}
		if latest == math.MaxInt64 {
			latest = 0
		}
		latest = max(latest, n.after(o.slot, o.slot, o.cost))
		if certain {
			turn = max(turn, n.after(began, o.slot, o.least))
		}
	}
	return turn - 2 - s.slot
}
