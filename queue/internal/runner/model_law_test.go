package runner

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/clock"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/policies"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// A norm is one rule by its definition in a textbook: it looks at all starts there were.
type norm struct {
	kind   rules.Kind
	n      int64
	period int64 // µs
	burst  int64
	ramp   int64 // of a leak, in µs; 0 for none
	drop   bool  // a job that it does not admit is dropped
}

func (n norm) rule() rules.Rule {
	return rules.Rule{Kind: n.kind, Limit: int(n.n), Period: clock.Micros(n.period), Burst: int(n.burst), Ramp: clock.Micros(n.ramp)}
}

// interval is the time between two starts of cost 1 at the norm's rate.
func (n norm) interval() int64 { return n.period / n.n }

// A code is what limits one subject: rules, how many of its jobs run at once, and how many wait.
type code struct {
	norms   []norm
	shadows []norm // keep nothing from starting
	most    int    // 0 for no limit
	room    int    // 0 for no bound
}

// String returns what keeps jobs from starting.

func (c code) String() string {
	var words []string
	for _, n := range c.norms {
		words = append(words, n.rule().String())
		if n.drop {
			words = append(words, "or drop")
		}
	}
	for _, n := range c.shadows {
		words = append(words, n.rule().String()+" in shadow")
	}
	if c.most > 0 {
		words = append(words, fmt.Sprint("concurrency ", c.most))
	}
	return "[" + strings.Join(words, ", ") + "]"
}

// lasting is the longest that the code remembers a start.
func (c code) lasting() (longest int64) {
	for _, n := range c.norms {
		longest = max(longest, n.period, n.burst*n.interval())
		if n.ramp > 0 { // the next start of a ramp that has just begun, and as long as it remembers that
			longest = max(longest, 5*n.interval()+n.ramp/2+n.ramp)
		}
	}
	return longest
}

// fuzzy reports whether the code has rules whose memory is a sum: after a change, or a refund, they
// may remember more than there was.
func (c code) fuzzy() bool {
	for _, n := range c.norms {
		if n.kind != rules.Window && n.kind != rules.Spacing {
			return true
		}
	}
	return false
}

// A spend is one start as a subject remembers it.
type spend struct {
	t       *task
	lane    envelope.Lane
	at      int64 // by the machine's clock
	given   int64 // when its commit was sent
	slot    int64 // the same clock
	cost    int64
	least   int64 // less than the cost, where a digest has lost its costliest member on the way to its start
	gone    int64 // when it was given back to the user; 0 if it was not
	phantom bool  // a claim of a worker that died: nobody knows whether it started
	unseen  bool  // the handler will say that the user has seen nothing of it
}

// A ledger is what has started of one subject.
type ledger struct {
	scope   string
	code    code
	counts  string // what a limit by name counts; "" if there is none
	since   int64  // since when the code is in force
	vague   int64  // until when older codes, or moves of a clock, may still bind
	muddled int64  // since when they may
	starts  []spend
	running map[*attempt]bool
	freed   int64 // since when its concurrency limit is not reached
	gone    int64 // when something was given back last
	shift   int64 // of Redis's clock beside the machine's
	moved   bool  // that has changed
}

func (l *ledger) full() bool { return l.code.most > 0 && len(l.running) >= l.code.most }

// Allowances of the judge, in µs.
const (
	wider   = 10_000  // rules may be that much wider than written: the grace, twice
	decided = 120_000 // so long after a change starts may have been decided before it
)

// opens returns from when on the rules of a subject admit a start of that cost, after all that has
// started. It asks for the most that the rules may remember.
func (l *ledger) opens(cost, from int64) int64 {
	at := max(from, l.gone, l.vague)
	for _, s := range l.starts {
		at = max(at, s.at)
	}
	for range 3 {
		before := at
		for _, n := range l.code.norms {
			if !n.drop {
				at = n.first(l, at, cost)
			}
		}
		if at == before {
			break
		}
	}
	return at
}

func (n norm) first(l *ledger, at, cost int64) int64 {
	starts := l.starts
	switch n.kind {
	case rules.Window:
		return n.firstOfWindow(starts, at, min(cost, n.n))
	case rules.Spacing:
		for _, s := range starts {
			if s.gone == 0 {
				at = max(at, s.at+n.period+wider)
			}
		}
		return at
	case rules.FixedWindow:
		return n.firstOfPeriod(starts, at+l.shift, l.shift, min(cost, n.n)) - l.shift
	case rules.Leak:
		if n.ramp > 0 {
			return n.firstOfRamp(l, at)
		}
		for _, s := range starts {
			at = max(at, s.slot+s.cost*n.interval()+1)
		}
		return at
	}
	full := int64(0)
	for _, s := range bySlot(starts) {
		if s.slot >= l.muddled { // tokens may be missing since, until the bucket has been full
			full = max(full, l.vague)
		}
		full = max(full, s.slot) + min(s.cost, n.burst)*n.interval()
	}
	return max(at, full+(min(cost, n.burst)-n.burst)*n.interval()+1)
}

func (n norm) firstOfWindow(starts []spend, at, cost int64) int64 {
	wide := n.period + wider
	for {
		sum, oldest := int64(0), int64(math.MaxInt64)
		for _, s := range starts {
			if s.gone == 0 && s.at > at-wide {
				sum, oldest = sum+min(s.cost, n.n), min(oldest, s.at)
			}
		}
		if sum+cost <= n.n || sum == 0 {
			return at
		}
		at = oldest + wide
	}
}

// firstOfPeriod counts the starts of the period, those near its edges in both.
func (n norm) firstOfPeriod(starts []spend, at, shift, cost int64) int64 {
	for {
		if end := (at/n.period + 1) * n.period; at >= end-2*wider {
			at = end
		}
		begin, sum := at/n.period*n.period, int64(0)
		for _, s := range starts {
			if at := s.at + shift; at >= begin-wider && at < begin+n.period {
				sum += min(s.cost, n.n)
			}
		}
		if sum+cost <= n.n || sum == 0 {
			return at
		}
		at = begin + n.period
	}
}

// takeBack lets what was given back since an instant count again: other rules may not know of it.
func (l *ledger) takeBack(since int64) {
	for i := range l.starts {
		if l.starts[i].gone >= since {
			l.starts[i].gone = 0
		}
	}
}

// before reports whether a start may have been decided before the rules were in force.
func (l *ledger) before(s spend) bool {
	return s.given < l.since || s.slot < l.since+decided || s.at < l.since+decided
}

// broken returns the norm that a start breaks, if it does: counted since the code is in force, by the
// machine's clock, and by slots where a rule holds for slots.
func (l *ledger) broken(s spend, user bool) string {
	if l.before(s) {
		return ""
	}
	for _, n := range l.code.norms {
		sum, last, when := min(s.least, n.n), int64(0), int64(0)
		var counted []spend
		for _, o := range l.starts {
			if o.phantom || user && o.unseen || l.before(o) {
				continue
			}
			switch n.kind {
			case rules.Window:
				if o.at > s.at-n.period {
					sum += min(o.least, n.n)
				}
			case rules.Spacing:
				if d := s.at - o.at; d < n.period {
					return fmt.Sprintf("%v: %v after a start", n.rule(), clock.Micros(d))
				}
			case rules.FixedWindow:
				if (o.at+l.shift)/n.period == (s.at+l.shift)/n.period {
					sum += min(o.least, n.n)
				}
			case rules.Leak:
				if n.ramp > 0 {
					continue
				}
				if o.slot <= s.slot && o.slot >= last {
					last, when = o.slot, o.slot+o.least*n.interval()
				} else if o.slot > s.slot && s.slot+s.least*n.interval() > o.slot+1 {
					return fmt.Sprintf("%v: a slot %v before one that was given", n.rule(), clock.Micros(o.slot-s.slot))
				}
			case rules.TokenBucket:
				counted = append(counted, o)
			}
		}
		if n.ramp > 0 {
			if early := n.rushed(l, s, user); early > 0 {
				return fmt.Sprintf("%v: a slot %v too early", n.rule(), clock.Micros(early))
			}
			continue
		}
		switch {
		case n.kind == rules.Leak && s.slot < when-1:
			return fmt.Sprintf("%v: a slot %v too early", n.rule(), clock.Micros(when-s.slot))
		case n.kind == rules.TokenBucket && n.overdrawn(append(counted, s)) > 1:
			return fmt.Sprintf("%v: a slot %v too early", n.rule(), clock.Micros(n.overdrawn(append(counted, s))))
		case (n.kind == rules.Window || n.kind == rules.FixedWindow) && sum > n.n && sum > min(s.least, n.n):
			return fmt.Sprintf("%v: %d starts", n.rule(), sum)
		}
	}
	return ""
}

// overdrawn returns by how much the slot comes too early that a bucket has the fewest tokens for.
func (n norm) overdrawn(starts []spend) (early int64) {
	full := int64(0)
	for _, s := range bySlot(starts) {
		cost := min(s.least, n.burst)
		early = max(early, full+(cost-n.burst)*n.interval()-s.slot)
		full = max(full, s.slot) + cost*n.interval()
	}
	return early
}

func bySlot(starts []spend) []spend {
	return slices.SortedStableFunc(slices.Values(starts), func(a, b spend) int { return cmp.Compare(a.slot, b.slot) })
}

// forget drops what is so old that no rule can tell.
func (l *ledger) forget(now int64) {
	const most = 60
	if len(l.starts) < 2*most {
		return
	}
	long, lacking := l.code.lasting()+5_000_000, int64(math.MaxInt64)
	for _, n := range l.code.norms {
		if n.kind == rules.TokenBucket {
			lacking = min(lacking, n.notFullSince(l.starts))
		}
	}
	keep := l.starts[:0]
	for i, s := range l.starts {
		if s.at > now-long || s.slot >= lacking || i >= len(l.starts)-most {
			keep = append(keep, s)
		}
	}
	l.starts = keep
}

// notFullSince returns the slot of the first start since which the bucket has not been full.
func (n norm) notFullSince(starts []spend) (since int64) {
	full := int64(0)
	for _, s := range bySlot(starts) {
		if full <= s.slot {
			since, full = s.slot, s.slot
		}
		full += min(s.cost, n.burst) * n.interval()
	}
	return since
}

// A codex is all policies as the textbook knows them.
type codex struct {
	queue   code
	tenants []code // by the number of the tenant
	users   []code
	weights []int
	named   []statute
	digests []terms           // by the number of the tenant
	decrees map[string]decree // by scope
}

func (c codex) String() string {
	text := fmt.Sprint("queue ", c.queue)
	for i := range c.tenants {
		text += fmt.Sprintf("; t%d %v, users %v room %d, weight %d", i, c.tenants[i], c.users[i], c.users[i].room, c.weights[i])
	}
	if len(c.digests) > 0 {
		text += fmt.Sprintf("; digests %+v", c.digests)
	}
	for _, s := range c.named {
		text += fmt.Sprint("; ", s)
	}
	for scope, d := range c.decrees {
		text += fmt.Sprintf("; %s until %d: %v", scope, d.until, d.code)
	}
	return text
}

// policies returns the same for the engine, from a policy file: each tenant has a policy of its own.
func (c codex) policies(version, now int64) *schedule.Policies {
	source, err := c.file().Source()
	if err != nil {
		panic(err)
	}
	compiled, err := policies.Compile("q", source, version, now)
	if err != nil {
		panic(err)
	}
	return compiled
}
