package throttle

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
)

// A fact is a row of somebody's published test: what a limiter answered to a request.
// Times count from the begin of the table.
type fact struct {
	at time.Duration
	// op is allow, reserve or peek; never, for a cost that is an error; reset; or refund,
	// where cost is the earlier row that is given back.
	op        string
	cost      int
	slot      time.Duration // when it may start
	remaining int           // -1: the source does not say
	reset     time.Duration // likewise
}

const unsaid = -1

func row(at time.Duration, op string, cost int, slot time.Duration) fact {
	return fact{at, op, cost, slot, unsaid, unsaid}
}

// A table is what was asked while some rules were in force.
type table struct {
	rules []Rule
	facts []fact
}

// checkFacts lets memory and Redis answer for a table. Another one goes on where it
// ended: the rules were changed.
func checkFacts(t *testing.T, tables ...table) {
	t.Helper()
	for _, c := range []contestant{memoryContestant(), redisContestant(t, "miniredis", redistest.ExactMini(t))} {
		begin := time.Unix(1_763_600_000, 0)
		var decisions []Decision
		for _, table := range tables {
			for _, f := range table.facts {
				c.set(begin.Add(f.at).UnixMicro())
				d := answer(t, c.store, table.rules, f, decisions)
				if d.Outcome != Undecided {
					f.check(t, fmt.Sprintf("%s, row %d", c.name, len(decisions)), d, begin)
				}
				decisions = append(decisions, d)
			}
		}
	}
}

// answer returns what a store decides on a fact, undecided where there is nothing to it.
func answer(t *testing.T, store Store, rules []Rule, f fact, before []Decision) Decision {
	t.Helper()
	limiter, d := New(store), Decision{Outcome: Undecided}
	var err error
	switch f.op {
	case "refund":
		err = limiter.Refund(t.Context(), before[f.cost])
	case "reset":
		err = limiter.Reset(t.Context(), "u")
	case "never":
		if _, err = limiter.Reserve(t.Context(), f.cost, Subject{Key: "u", Rules: rules}); errors.Is(err, ErrImpossibleCost) {
			return d
		}
		t.Fatalf("a cost of %d: %v, want it to be impossible", f.cost, err)
	default:
		d, err = limiter.decide(t.Context(), newRequest(verb(f.op), f.cost, []Subject{{Key: "u", Rules: rules}}))
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (f fact) check(t *testing.T, where string, d Decision, begin time.Time) {
	t.Helper()
	if slot := d.Slot.Sub(begin); slot != f.slot {
		t.Errorf("%s: slot %v, want %v", where, slot, f.slot)
	}
	if f.remaining != unsaid && d.Remaining != f.remaining {
		t.Errorf("%s: %d remaining, want %d", where, d.Remaining, f.remaining)
	}
	if f.reset != unsaid && d.ResetAfter != f.reset {
		t.Errorf("%s: reset after %v, want %v", where, d.ResetAfter, f.reset)
	}
}

// golang.org/x/time/rate, rate_test.go: t1 is 100 ms, a table bears the name of its test.
// There a reservation is for as many tokens as there may ever be, and an n of 0 takes
// none; here the one is Reserve, and the other Peek.
func TestXTimeRate(t *testing.T) {
	t.Parallel()
	const t0, t1, t2, t3, t4, t5, t8, t9, t10 = 0, 100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond,
		400 * time.Millisecond, 500 * time.Millisecond, 800 * time.Millisecond, 900 * time.Millisecond, time.Second
	allow := func(at time.Duration, cost int, slot time.Duration) fact { return row(at, "allow", cost, slot) }
	reserve := func(at time.Duration, cost int, slot time.Duration) fact { return row(at, "reserve", cost, slot) }
	peek := func(at time.Duration, cost int, slot time.Duration) fact { return row(at, "peek", cost, slot) }
	never := func(at time.Duration, cost int) fact { return row(at, "never", cost, 0) }
	cancel := func(at time.Duration, earlier int) fact { return row(at, "refund", earlier, 0) }
	under := func(n, burst int, facts ...fact) table {
		return table{[]Rule{TokenBucket(n, time.Second, burst)}, facts}
	}
	tests := map[string][]table{
		"LimiterBurst1": {under(10, 1,
			allow(t0, 1, t0), allow(t0, 1, t1), allow(t0, 1, t1), allow(t1, 1, t1), allow(t1, 1, t2),
			allow(t1, 1, t2), never(t2, 2), allow(t2, 1, t2), allow(t2, 1, t3),
		)},
		"LimiterBurst3": {under(10, 3,
			allow(t0, 2, t0), allow(t0, 2, t1), allow(t0, 1, t0), allow(t0, 1, t1), never(t1, 4), allow(t2, 1, t2),
			allow(t3, 1, t3), allow(t4, 1, t4), allow(t4, 1, t4), allow(t4, 1, t5), allow(t4, 1, t5),
			allow(t9, 3, t9), peek(t9, 1, t10),
		)},
		// It keeps its two tokens when the clock steps back, and admits the third. Ours keeps
		// the instant at which the bucket is full again: it is stricter by what the clock lost.
		"LimiterJumpBackwards, but later by the jump": {under(10, 3,
			allow(t1, 1, t1), allow(t0, 1, t0), allow(t0, 1, t1), allow(t0, 1, t1), allow(t0, 1, t1), allow(t1, 1, t1),
			allow(t1, 1, t2), allow(t1, 1, t2), allow(t2, 1, t2), allow(t2, 1, t3), allow(t2, 1, t3),
		)},
		"SimpleReserve": {under(10, 2, reserve(t0, 2, t0), reserve(t0, 2, t2), reserve(t3, 2, t4))},
		"Mix": {under(10, 2,
			never(t0, 3), reserve(t0, 2, t0), allow(t1, 2, t2), reserve(t1, 2, t2), allow(t1, 1, t3), allow(t3, 1, t3),
		)},
		"CancelInvalid": {under(10, 2, reserve(t0, 2, t0), never(t0, 3), cancel(t0, 1), reserve(t0, 2, t2))},
		"CancelLast":    {under(10, 2, reserve(t0, 2, t0), reserve(t0, 2, t2), cancel(t1, 1), reserve(t1, 2, t2))},
		// It ignores a cancellation after the slot, as if the tokens had been used. Ours
		// believes whoever says that they were not: then the bucket is full by now.
		"CancelTooLate, but not used": {under(10, 2, reserve(t0, 2, t0), reserve(t0, 2, t2), cancel(t3, 1), reserve(t3, 2, t3))},
		"Cancel0Tokens": {under(10, 2,
			reserve(t0, 2, t0), reserve(t0, 1, t1), reserve(t0, 1, t2), cancel(t0, 1), reserve(t0, 1, t3),
		)},
		"Cancel1Token": {under(10, 2,
			reserve(t0, 2, t0), reserve(t0, 2, t2), reserve(t0, 1, t3), cancel(t2, 1), reserve(t2, 2, t4),
		)},
		"CancelMulti": {under(10, 4,
			reserve(t0, 4, t0), reserve(t0, 3, t3), reserve(t0, 1, t4), reserve(t0, 1, t5),
			cancel(t1, 3), cancel(t1, 1), reserve(t1, 3, t5),
		)},
		// The source says of its own answers to the next five that they break the limit: it
		// gives t1 and t3, ...
		"ReserveJumpBack, but within the limit": {under(10, 2, reserve(t1, 2, t1), reserve(t0, 1, t2), reserve(t2, 2, t4))},
		// ... t4,
		"ReserveJumpBackCancel, but within the limit": {under(10, 2,
			reserve(t1, 2, t1), reserve(t1, 2, t3), reserve(t1, 1, t4), cancel(t0, 1), reserve(t1, 2, t5),
		)},
		// ... t4 for the last one, beside the two that start then already,
		"ReserveSetLimit, but within the limit": {
			under(5, 2, reserve(t0, 2, t0), reserve(t0, 2, t4)), under(10, 2, reserve(t2, 1, t5)),
		},
		// ... and t9, one interval more than the larger burst asks for.
		"ReserveSetBurst, but as soon as it may": {
			under(5, 2, reserve(t0, 2, t0), reserve(t0, 2, t4)), under(5, 4, reserve(t3, 4, t8)),
		},
		// It gives t3: until t2 the tokens came at the old rate. Ours counts as if the looser
		// rule had held all along.
		"ReserveSetLimitCancel, but at once": {
			under(5, 2, reserve(t0, 2, t0), reserve(t0, 2, t4)), under(10, 2, cancel(t2, 1), reserve(t2, 2, t2)),
		},
		// Whoever does not want to wait as long as that peeks, and spends nothing.
		"ReserveMax":  {under(10, 2, reserve(t0, 2, t0), reserve(t0, 1, t1), peek(t0, 1, t2), peek(t0, 1, t2))},
		"WaitSimple":  {under(10, 3, never(t0, 4), reserve(t0, 2, t0), reserve(t0, 3, t2))},
		"WaitCancel":  {under(10, 3, reserve(t0, 2, t0), reserve(t0, 3, t2), cancel(t1, 1), reserve(t1, 2, t1))},
		"WaitTimeout": {under(10, 3, reserve(t0, 2, t0), peek(t0, 3, t2), reserve(t0, 1, t0))},
		// 10 in 13 s there are 0.7692307692307693 a second.
		"noTruncationErrors": {{[]Rule{TokenBucket(10, 13*time.Second, 1)}, []fact{
			allow(t0, 1, t0), allow(1299999*time.Microsecond, 1, 1300*time.Millisecond), allow(1300*time.Millisecond, 1, 1300*time.Millisecond),
		}}},
	}
	for name, tables := range tests {
		t.Run(name, func(t *testing.T) { checkFacts(t, tables...) })
	}
}

// github.com/throttled/throttled, rate_test.go, and github.com/brandur/redis-cell,
// src/cell/mod.rs, the same table: 1 a second, burst 5. Their volume 0 is our Peek, their
// -1, never, for a volume above the burst our error.
func TestThrottled(t *testing.T) {
	t.Parallel()
	const sec, ms = time.Second, time.Millisecond
	checkFacts(t, table{[]Rule{TokenBucket(1, sec, 5)}, []fact{
		row(0, "never", 6, 0),
		{0, "peek", 1, 0, 5, 0}, // which has spent nothing
		{0, "allow", 1, 0, 4, 1 * sec},
		{0, "allow", 1, 0, 3, 2 * sec},
		{0, "allow", 1, 0, 2, 3 * sec},
		{0, "allow", 1, 0, 1, 4 * sec},
		{0, "allow", 1, 0, 0, 5 * sec},
		{0, "allow", 1, 1 * sec, 0, 5 * sec},
		{3000 * ms, "allow", 1, 3000 * ms, 2, 3000 * ms},
		{3100 * ms, "allow", 1, 3100 * ms, 1, 3900 * ms},
		{4000 * ms, "allow", 1, 4000 * ms, 1, 4000 * ms},
		{8000 * ms, "allow", 1, 8000 * ms, 4, 1000 * ms},
		{9500 * ms, "allow", 1, 9500 * ms, 4, 1000 * ms},
		{9500 * ms, "peek", 1, 9500 * ms, 4, 1 * sec},
		{9500 * ms, "allow", 2, 9500 * ms, 2, 3 * sec},
		{9500 * ms, "allow", 5, 12500 * ms, 2, 3 * sec},
	}})
}

// github.com/letsencrypt/boulder, ratelimits/gcra_test.go and limiter_test.go. A cost of 0
// there is our Peek of 1. After a spend it also says when the same could be spent again:
// that is a Peek here.
func TestBoulder(t *testing.T) {
	t.Parallel()
	const sec, ms, us = time.Second, time.Millisecond, time.Microsecond
	slow := []Rule{TokenBucket(1, sec, 10)}
	const long = 20*time.Hour + 11*sec + 999*ms // where Decide goes on after 20 hours
	t.Run("Decide", func(t *testing.T) {
		checkFacts(t, table{slow, []fact{
			{0, "allow", 1, 0, 9, 1 * sec},
			{0, "allow", 9, 0, 0, 10 * sec},
			{0, "peek", 9, 9 * sec, 0, 10 * sec},
			{0, "allow", 1, 1 * sec, 0, 10 * sec},
			{1*sec - us, "allow", 1, 1 * sec, 0, 9*sec + us},
			{1 * sec, "peek", 1, 1 * sec, 1, 9 * sec},
			{1 * sec, "allow", 1, 1 * sec, 0, 10 * sec},
			{11 * sec, "allow", 1, 11 * sec, 9, 1 * sec},
			{11*sec + 999*ms, "peek", 1, 11*sec + 999*ms, 9, 1 * ms},
			{long, "peek", 1, long, 10, 0},
			{long, "allow", 10, long, 0, 10 * sec},
			{long, "peek", 10, long + 10*sec, 0, 10 * sec},
			{long, "peek", 1, long + 1*sec, 0, 10 * sec},
			{long, "allow", 1, long + 1*sec, 0, 10 * sec},
			{long + 1*sec, "allow", 1, long + 1*sec, 0, 10 * sec},
			{long + 6*sec, "allow", 7, long + 8*sec, 5, 5 * sec},
		}})
	})
	// Refunds there are of any amount, ours of what was spent: where it refunds a part, the
	// part is a row of its own here.
	t.Run("MaybeRefund", func(t *testing.T) {
		checkFacts(t, table{slow, []fact{
			{0, "allow", 1, 0, 9, 1 * sec},
			row(0, "refund", 0, 0),
			{0, "peek", 1, 0, 10, 0},
			row(0, "refund", 0, 0), // again, which is nothing
			{0, "peek", 1, 0, 10, 0},
			{0, "allow", 1, 0, 9, 1 * sec},
			row(1*sec, "refund", 5, 0), // full by itself
			{1 * sec, "peek", 1, 1 * sec, 10, 0},
			{1 * sec, "allow", 10, 1 * sec, 0, 10 * sec},
			row(1*sec, "refund", 8, 0),
			{1 * sec, "peek", 1, 1 * sec, 10, 0},
			{1 * sec, "allow", 1, 1 * sec, 9, 1 * sec},
			row(12*sec, "refund", 11, 0), // long after
			{12 * sec, "peek", 1, 12 * sec, 10, 0},
			{12 * sec, "allow", 2, 12 * sec, 8, 2 * sec},
			{12 * sec, "allow", 2, 12 * sec, 6, 4 * sec},
			{12 * sec, "allow", 1, 12 * sec, 5, 5 * sec},
			row(12*sec, "refund", 16, 0),
			{12 * sec, "peek", 1, 12 * sec, 6, 4 * sec},
			{14500 * ms, "peek", 1, 14500 * ms, 8, 1500 * ms},
			row(14500*ms, "refund", 15, 0), // of 2: full, not 10.5
			{14500 * ms, "peek", 1, 14500 * ms, 10, 0},
		}})
	})
	overridden := []Rule{TokenBucket(40, sec, 40)}
	normal := []Rule{TokenBucket(20, sec, 20)}
	for name, each := range map[string]struct {
		rules []Rule
		burst int
		gap   time.Duration
	}{"CheckWithLimitOverrides": {overridden, 40, 25 * ms}, "DefaultLimits": {normal, 20, 50 * ms}} {
		t.Run(name, func(t *testing.T) {
			facts := []fact{
				{0, "allow", each.burst, 0, 0, 1 * sec},
				{0, "allow", 1, each.gap, 0, 1 * sec},
				{each.gap, "allow", 1, each.gap, 0, 1 * sec},
			}
			at := each.gap + 1*sec
			for i := range each.burst {
				facts = append(facts, fact{at, "allow", 1, at, each.burst - 1 - i, unsaid})
			}
			checkFacts(t, table{each.rules, append(facts, fact{at, "allow", 1, at + each.gap, 0, 1 * sec})})
		})
	}
	// A check there answers as if the cost were spent; our Peek, how things stand.
	t.Run("InitializationViaCheckAndSpend", func(t *testing.T) {
		checkFacts(t, table{normal, []fact{
			{0, "peek", 1, 0, 20, 0}, {0, "peek", 1, 0, 20, 0}, row(0, "reset", 0, 0),
			{0, "allow", 1, 0, 19, 50 * ms}, {0, "peek", 1, 0, 19, 50 * ms},
		}})
	})
	t.Run("RefundAndReset", func(t *testing.T) {
		checkFacts(t, table{normal, []fact{
			{0, "allow", 10, 0, 10, 500 * ms},
			{0, "allow", 10, 0, 0, 1 * sec},
			row(0, "refund", 1, 0),
			{0, "peek", 1, 0, 10, 500 * ms},
			{0, "allow", 10, 0, 0, 1 * sec},
			row(0, "reset", 0, 0),
			{0, "allow", 20, 0, 0, 1 * sec},
			row(1*sec, "refund", 6, 0), // above the limit
			{1 * sec, "peek", 1, 1 * sec, 20, 0},
		}})
	})
}

// A batch of two limits: the one that is nearer to its end answers. Where one refuses, we
// spend nothing at all; there the other one is spent. Its transactions that only check or
// only spend have no like here: what is to be watched and not enforced is a shadow rule.
func TestBoulderBatches(t *testing.T) {
	t.Parallel()
	overridden := Subject{Key: "64.112.117.1", Rules: []Rule{TokenBucket(40, time.Second, 40)}}
	normal := Subject{Key: "10.0.0.1", Rules: []Rule{TokenBucket(20, time.Second, 20)}}
	c := memoryContestant()
	c.set(1_763_600_000_000_000)
	limiter := New(c.store)
	expect := func(what string, d Decision, err error, remaining int, reset time.Duration, subject Subject) {
		t.Helper()
		if err != nil || d.Remaining != remaining || d.ResetAfter != reset || d.Subject != subject.Key {
			t.Errorf("%s: %+v, %v; want %d of %s, reset after %v", what, d, err, remaining, subject.Key, reset)
		}
	}
	for range 2 { // spent, given back, and once more
		spent, err := limiter.Allow(t.Context(), 1, overridden, normal)
		expect("spent", spent, err, 19, 50*time.Millisecond, normal)
		if err := limiter.Refund(t.Context(), spent); err != nil {
			t.Fatal(err)
		}
		full, err := limiter.Peek(t.Context(), 1, normal)
		expect("given back", full, err, 20, 0, normal)
	}
	for range 20 {
		if d, err := limiter.Allow(t.Context(), 1, overridden, normal); err != nil || d.Outcome != Admitted {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	refused, err := limiter.Allow(t.Context(), 1, overridden, normal)
	expect("refused", refused, err, 0, time.Second, normal)
	if refused.Outcome != Deferred || refused.RetryAfter != 50*time.Millisecond {
		t.Errorf("refused: %+v", refused)
	}
	left, err := limiter.Peek(t.Context(), 1, overridden)
	expect("the other one after the refusal", left, err, 20, 500*time.Millisecond, overridden)
}
