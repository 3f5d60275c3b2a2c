package rules

// Never is the last instant, in the year 2255: the integers that a double holds exactly
// end there. Whatever would lie behind it lies at it.
const Never = int64(1) << 53

// mostUnits bounds every count, so that its product with a rule's limit stays an exact
// double too.
const mostUnits = 1_000_000_000

// later returns the instant d after t.
func later(t, d int64) int64 {
	if t >= Never-d {
		return Never
	}
	return t + d
}

// A pace is how fast a rule admits: n per period.
type pace struct {
	n, period int64
	step, odd int64 // the period is n·step + odd
	far       int64 // so many units take longer than time lasts
}

func newPace(n, period int64) pace {
	step := period / n
	return pace{n: n, period: period, step: step, odd: period % n, far: Never / (step + 1)}
}

// advance moves an instant, in microseconds and n-ths of one, by the time that the pace
// takes for so many units, so that no rate drifts by rounding.
func (p *pace) advance(at, rest, units int64) (int64, int64) {
	switch {
	case units >= p.far:
		return Never, 0
	case units <= -p.far:
		return 0, 0
	}
	at += units * p.step
	if rest != 0 || p.odd != 0 {
		ticks := rest + units*p.odd
		whole := ticks / p.n
		if ticks%p.n < 0 {
			whole--
		}
		at, rest = at+whole, ticks-whole*p.n
	}
	if at >= Never {
		return Never, 0
	}
	return at, rest
}

func roundUp(at, rest int64) int64 {
	if rest > 0 {
		return at + 1
	}
	return at
}

// isLater tells whether the first instant, with its n-ths, lies behind the second.
func isLater(at, rest, than, part int64) bool { return at > than || at == than && rest > part }
