package schedule

import "github.com/waterclock/waterclock/internal/rules"

// What rules allow at an instant they allow later, too, unless hours have closed meanwhile. So, where policies have hours:
//
//   - the rules of a job are asked until all of them agree (slot);
//   - a lane that hours keep waiting has the instant at which they open as its bound, whoever's hours they are: it does not stand
//     in the line of a limit by name, in which one start makes room for the next;
//   - a slot that has to lie ahead may lie behind the closing: then the lane waits for the opening;
//   - the time that a job may wait does not pass while hours are closed (Policy.Deadline).
//
// Without hours none of this costs anything.

// Closes reports whether some of the rules are hours. It works on nil.
func (p *Policies) Closes() bool { return p != nil && p.Hours }

// hours returns those of a job's subjects whose rules have hours.
func (d *decision) hours(of []share) []Remembered {
	d.closing = d.closing[:0]
	for _, who := range of {
		if who.of.rules.Closes() {
			d.closing = append(d.closing, Remembered{who.of.rules, &who.of.state, who.cost})
		}
	}
	return d.closing
}

// Open returns the first instant from one on at which the hours of all are open, and until when they are.
func Open(of []Remembered, t int64) (from, until int64) {
	from = t
	for range passes {
		before := from
		until = Never
		for _, r := range of {
			opens, closes := r.Rules.Open(r.State, from)
			from, until = opens, min(until, closes)
		}
		if from == before {
			break
		}
	}
	return from, until
}

// mostOpenings bounds how often hours are asked for when they have been open for long enough.
const mostOpenings = 1000

// Lasting returns the instant at which the hours of all have been open for so long since another instant.
func Lasting(of []Remembered, since, long int64) int64 {
	for range mostOpenings {
		from, until := Open(of, since)
		if from >= rules.Never || until-from >= long {
			return from + long
		}
		long -= until - from
		since = until
	}
	return since + long
}

// closed returns for how long the hours are closed between two instants.
func closed(of []Remembered, from, to int64) (long int64) {
	for range mostOpenings {
		opens, until := Open(of, from)
		long += min(opens, to) - from
		if until >= to {
			break
		}
		from = until
	}
	return long
}
