package throttle

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
)

// An asker is a caller that takes turns, in a world of its own time. It wants as much as there is, or a slot every so often.
type asker struct {
	name   string
	weight int
	every  int64 // µs; 0 for always
	late   int64 // up to so much later than it could it asks again

	next, comes    int64 // it asks next, and it wants a slot next
	waiting        int64 // slots that it has not got
	slots, calls   int
	longest, until int64 // the longest that it has waited for a slot; it has ended by then
}

// trip is how long an answer takes, and told is how far ahead slots have to be.
const trip, told = 300 * time.Microsecond, 1500 * time.Microsecond

// within is how far behind the first one slots may be for it, as a leader that is so late has it.
func (a *asker) within() time.Duration {
	return trip + 5*(time.Millisecond+time.Duration(a.late/2)*time.Microsecond)/2
}

// ask asks once, at an instant, and returns the slots.
func (a *asker) ask(t *testing.T, l *Limiter, of []Rule, now int64, rng *rand.Rand) (slots []int64) {
	for ; a.every > 0 && a.comes <= now; a.comes += a.every {
		a.waiting++
	}
	wants := int64(64)
	if a.every > 0 {
		wants = a.waiting
	}
	if wants == 0 {
		a.next = a.comes
		return nil
	}
	requests := slices.Repeat([]Request{{By: a.name, More: a.every == 0, Subjects: []Subject{{Key: "k", Rules: of, Weight: a.weight}}}}, int(wants))
	all, err := l.ReserveMany(t.Context(), told, a.within(), requests...)
	if err != nil {
		t.Fatal(err)
	}
	a.calls++
	pause := 500 + rng.Int64N(1000)
	for _, d := range all {
		if !d.Spent() {
			pause = max(pause, d.Again.Microseconds())
			break
		}
		slots = append(slots, d.Slot.UnixMicro())
		if a.every > 0 {
			a.longest = max(a.longest, d.Slot.UnixMicro()-(a.comes-a.waiting*a.every))
			a.waiting--
		}
	}
	a.slots += len(slots)
	if len(slots) == len(requests) {
		pause = all[len(all)-1].Again.Microseconds()
	}
	a.next = now + trip.Microseconds() + pause + rng.Int64N(a.late+1)
	return slots
}

// takeTurns lets askers take turns for so long, and returns how many slots lie in that time.
func takeTurns(t *testing.T, of []Rule, span time.Duration, askers ...*asker) (used int) {
	store, now, rng := NewMemoryStore().(*memoryStore), int64(0), rand.New(rand.NewPCG(1, 2))
	store.clock = func() time.Time { return time.UnixMicro(now) }
	l := New(store)
	begin := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC).UnixMicro()
	end := begin + span.Microseconds()
	for _, a := range askers {
		a.next, a.comes = begin+rng.Int64N(1000), begin
		if a.until == 0 {
			a.until = span.Microseconds()
		}
	}
	var slots []int64
	for {
		a := slices.MinFunc(askers, func(a, b *asker) int { return int(a.next - b.next) })
		if now = max(now, a.next); now >= end {
			break
		}
		if now-begin > a.until {
			a.next = end
			continue
		}
		slots = append(slots, a.ask(t, l, of, now, rng)...)
	}
	for _, slot := range slots {
		if slot < end {
			used++
		}
	}
	return used
}

// Callers of different weights use a limit up, and each gets what its weight says. A caller that wants little is not kept by those that want
// much.
func TestTurns(t *testing.T) {
	t.Parallel()
	tests := []struct {
		of      []Rule
		callers int
		rate    float64       // a second
		within  float64       // of a caller's share
		little  time.Duration // the longest that somebody waits who wants a slot every 97 ms; 0 if that is more than its share
		calls   float64       // for one slot
	}{
		{[]Rule{Leak(100, time.Second)}, 1, 100, 0, 15 * time.Millisecond, 1},
		{[]Rule{Leak(100, time.Second)}, 16, 100, 0.03, 0, 1.7},
		{[]Rule{Leak(130, time.Second), Window(250, 2*time.Second)}, 4, 125, 0.02, 0, 1.8},
		{[]Rule{Leak(500, time.Second)}, 16, 500, 0.02, 28 * time.Millisecond, 1.5},
		{[]Rule{Leak(1000, time.Second)}, 16, 1000, 0.02, 10 * time.Millisecond, 1},
		{[]Rule{Leak(2000, time.Second)}, 1, 2000, 0, 5 * time.Millisecond, 0.5},
		{[]Rule{Leak(5000, time.Second)}, 1, 5000, 0, 5 * time.Millisecond, 0.2},
		{[]Rule{Leak(5000, time.Second)}, 16, 5000, 0.01, 7 * time.Millisecond, 0.5},
		{[]Rule{Leak(50_000, time.Second)}, 16, 50_000, 0.01, 5 * time.Millisecond, 0.1},
		{[]Rule{Leak(50_000, time.Second)}, 64, 50_000, 0.02, 5 * time.Millisecond, 0.1},
		{[]Rule{Leak(2000, time.Second), Window(10_000, 10*time.Second)}, 16, 1000, 0.01, 0, 1.7},
		{[]Rule{Window(10_000, time.Second)}, 16, 10_000, 0.25, 0, 0.2},
		{[]Rule{TokenBucket(5000, time.Second, 500)}, 16, 5000, 0.06, 7 * time.Millisecond, 2.5},
		{[]Rule{Spacing(2 * time.Millisecond)}, 4, 500, 0.02, 15 * time.Millisecond, 2},
	}
	for _, test := range tests {
		t.Run(fmt.Sprint(test.of, " ", test.callers), func(t *testing.T) {
			t.Parallel()
			const span = 10 * time.Second
			var all []*asker
			weights := 0
			for k := range test.callers {
				all = append(all, &asker{name: fmt.Sprint("push/", k), weight: 1 + k%4})
				weights += 1 + k%4
			}
			little := &asker{name: "little", weight: 1, every: 97_000}
			if test.little > 0 {
				all = append(all, little)
			}
			used := takeTurns(t, test.of, span, all...)
			if share := float64(used) / test.rate / span.Seconds(); share < 0.995 {
				t.Errorf("%d slots were used, %.1f %%", used, 100*share)
			}
			calls := 0
			for _, a := range all[:test.callers] {
				calls += a.calls
				want := float64(used-little.slots) * float64(a.weight) / float64(weights)
				if got := float64(a.slots) / want; got < 1-test.within-64/want || got > 1+test.within+64/want {
					t.Errorf("%s of weight %d has got %d slots, %.2f of its share", a.name, a.weight, a.slots, got)
				}
			}
			if got := float64(calls) / float64(used); got > test.calls {
				t.Errorf("%.2f calls for a slot, want %.2f at most", got, test.calls)
			}
			if got := time.Duration(little.longest) * time.Microsecond; got > test.little {
				t.Errorf("who wants little waits for up to %v, want %v", got, test.little)
			}
		})
	}
}

// What is given back of a window or a period others get in it, though some have asked for more meanwhile: nobody has got a slot behind it.
func TestWhatComesBackToAWindow(t *testing.T) {
	for _, of := range []Rule{Window(10, 900*time.Millisecond), FixedWindow(10, time.Second), SlidingCounter(10, time.Second, 2)} {
		store, now := NewMemoryStore().(*memoryStore), time.Date(2026, 11, 1, 12, 0, 0, 200_000_000, time.UTC)
		store.clock = func() time.Time { return now }
		l := New(store)
		ask := func(who string) (got []Decision) {
			requests := slices.Repeat([]Request{{By: who, Subjects: []Subject{{Key: "k", Rules: []Rule{of}}}}}, 12)
			all, err := l.ReserveMany(t.Context(), time.Millisecond, 20*time.Millisecond, requests...)
			if err != nil {
				t.Fatal(err)
			}
			return slices.DeleteFunc(all, func(d Decision) bool { return !d.Spent() })
		}
		first := ask("first")
		if others := ask("second"); len(first) != 10 || len(others) != 0 {
			t.Fatalf("%v: %d slots and %d more, want 10 and none", of, len(first), len(others))
		}
		for _, d := range slices.Backward(first[6:]) {
			if err := l.Refund(t.Context(), d); err != nil {
				t.Fatal(err)
			}
		}
		now = now.Add(10 * time.Millisecond)
		if again := ask("second"); len(again) != 4 {
			t.Errorf("%v: 4 slots came back, and %d were handed out", of, len(again))
		}
	}
}

// Slots of one call are as far apart as it says, whichever of the subjects they are of, and near all the same.
func TestSlotsThatAreApart(t *testing.T) {
	store, now := NewMemoryStore().(*memoryStore), time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	store.clock = func() time.Time { return now }
	var requests []Request
	for k := range 8 {
		subject := Subject{Key: fmt.Sprint("k", k%2), Rules: []Rule{Leak(1000, time.Second)}}
		requests = append(requests, Request{By: "who", Subjects: []Subject{subject}, Gap: 1500 * time.Microsecond})
	}
	all, err := New(store).ReserveMany(t.Context(), time.Millisecond, 4*time.Millisecond, requests...)
	if err != nil {
		t.Fatal(err)
	}
	for k, d := range all {
		if near := k < 3; d.Spent() != near || near && d.Slot.Sub(now) != time.Millisecond+time.Duration(k)*1500*time.Microsecond {
			t.Errorf("slot %d is in %v, taken: %v", k, d.Slot.Sub(now), d.Spent())
		}
	}
}

// A lower cost does not overtake a higher one that has to wait for the same subject, so that this finds room once. Other subjects are not
// concerned.
func TestCostsThatWait(t *testing.T) {
	for _, c := range []contestant{memoryContestant(), redisContestant(t, "redis", redistest.Start(t).Client(t))} {
		c.set(1_763_600_000_123_457)
		of := func(key string, cost int) Request {
			return Request{By: "push", Cost: cost, Subjects: []Subject{{Key: key, Rules: []Rule{Window(3, time.Minute)}}}}
		}
		all, err := New(c.store).ReserveMany(t.Context(), 0, time.Second, of("a", 1), of("a", 3), of("a", 1), of("b", 1), of("a", 1))
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []bool{true, false, false, true, true} {
			if all[i].Spent() != want {
				t.Errorf("%s: request %d: %+v; want it taken: %v", c.name, i, all[i], want)
			}
		}
	}
}

// A caller that is near waits for the slots of one that is far, which lie ahead, and is dropped only where a rule has no more. Whoever is
// dropped is told by which rule, and has spent nothing.
func TestWhoIsDropped(t *testing.T) {
	for _, rule := range []Rule{Window(3, time.Minute), FixedWindow(3, 24*time.Hour), SlidingCounter(3, 24*time.Hour, 4), TokenBucket(3, 24*time.Hour, 3)} {
		for _, c := range []contestant{memoryContestant(), redisContestant(t, "redis", redistest.Start(t).Client(t))} {
			c.set(1_763_600_000_123_457)
			l, of := New(c.store), Subject{Key: "k", Rules: []Rule{Leak(1000, time.Second), rule.OrDrop(), Leak(1, time.Hour).AsShadow()}, Slack: 20 * time.Millisecond}
			ask := func(by string, after time.Duration, n int) []Decision {
				t.Helper()
				all, err := l.ReserveMany(t.Context(), after, 10*time.Millisecond, slices.Repeat([]Request{{By: by, Subjects: []Subject{of}}}, n)...)
				if err != nil {
					t.Fatal(c.name, err)
				}
				return all
			}
			far := ask("far", 5*time.Millisecond, 2)
			near := ask("near", time.Millisecond, 3)
			switch {
			case !far[0].Spent() || !far[1].Spent() || far[0].Shadow != "" || far[1].Shadow != "leak 1/1h":
				t.Errorf("%s, %v: the far one got %+v", c.name, rule, far)
			case !near[0].Spent() || near[0].Slot.Before(far[1].Slot):
				t.Errorf("%s, %v: the near one got %+v behind %v", c.name, rule, near[0], far[1].Slot)
			}
			for _, d := range near[1:] {
				if d.Outcome != Dropped || d.Spent() || d.Subject != "k" || d.Rule != rule.String() {
					t.Errorf("%s, %v: %+v; want it dropped", c.name, rule, d)
				}
			}
			if err := l.Refund(t.Context(), far[1]); err != nil {
				t.Fatal(err)
			}
			if again := ask("near", time.Millisecond, 1); !again[0].Spent() {
				t.Errorf("%s, %v: %+v where one was given back", c.name, rule, again[0])
			}
		}
	}
}

// What callers leave that are gone or late, others use, and nobody saves anything up.
func TestTurnsOfThoseWhoAreGone(t *testing.T) {
	t.Parallel()
	for _, of := range []Rule{Leak(100, time.Second), Leak(2000, time.Second), TokenBucket(2000, time.Second, 100)} {
		var all []*asker
		for k := range 16 {
			a := &asker{name: fmt.Sprint("push/", k), weight: 1, late: 3000}
			if k > 3 {
				a.until = (4 * time.Second).Microseconds()
			}
			all = append(all, a)
		}
		const span = 12 * time.Second
		used := takeTurns(t, []Rule{of}, span, all...)
		want := float64(of.limit) * span.Seconds()
		if share := float64(used) / want; share < 0.99 {
			t.Errorf("%v: %d slots were used, %.1f %%", of, used, 100*share)
		}
		for k, a := range all {
			share := want / 3 / 16
			if k < 4 {
				share += want * 2 / 3 / 4
			}
			if got := float64(a.slots) / share; got < 0.95-64/share || got > 1.05+64/share { // a turn is of 64
				t.Errorf("%v: %s has got %d slots, %.2f of its share", of, a.name, a.slots, got)
			}
		}
	}
}

// A call that begins once has one turn; two subjects of a request have turns of their own, and the one that binds decides.
func TestStoresAgreeAboutTurns(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	seed := sample.SeedOf(t)
	play := func(t *testing.T, round int, contestants ...contestant) {
		rng := rand.New(rand.NewPCG(seed, uint64(round)))
		warmup := func(per time.Duration) Rule {
			step := func() string { return fmt.Sprintf("%d/%s", 2+rng.IntN(5), per*time.Duration(1+rng.IntN(3))) }
			if rng.IntN(2) == 0 {
				step = func() string { return fmt.Sprintf("%d/day", 2+rng.IntN(5)) }
			}
			return Warmup("2026-03-27", fmt.Sprintf("1:%s,2:%s,3:%s,5:%s", step(), step(), step(), step()), "Europe/Paris")
		}
		rule := func() Rule {
			n, per := 2+rng.IntN(5), []time.Duration{1000, 3333, 50_000}[rng.IntN(3)]*time.Microsecond
			r := []Rule{Leak(n, per), TokenBucket(n, per, 2+rng.IntN(20)), Window(n, per), Spacing(per), FixedWindow(n, 100*per), SlidingCounter(n, 500*per, 2+rng.IntN(2)*3), CalendarWindow(n, "day", "Europe/Paris"), warmup(per), Leak(n, per).Ramping(time.Second)}[rng.IntN(9)]
			switch rng.IntN(6) {
			case 0:
				return r.AsShadow()
			case 1:
				return r.OrDrop()
			case 2:
				if counting := r.OrDrop().CountingDropped(); counting.slackens(time.Second) {
					return counting
				}
			}
			return r
		}
		subjects := []Subject{{Key: "a", Rules: []Rule{rule()}}, {Key: "b", Rules: []Rule{rule(), rule()}, Slack: 20 * time.Millisecond}}
		now, granted := int64(1_763_600_000_123_457), make([][]Decision, len(contestants))
		if rng.IntN(2) == 0 { // shortly before midnight in Paris, where the next day has 23 hours
			now = time.Date(2026, 3, 28, 22, 59, 59, 800_000_000, time.UTC).UnixMicro()
		}
		for _, c := range contestants {
			if err := New(c.store).Reset(t.Context(), "a", "b"); err != nil {
				t.Fatal(err)
			}
		}
		for step := range 60 {
			now += []int64{rng.Int64N(50), rng.Int64N(3000), rng.Int64N(60_000), -rng.Int64N(2000)}[rng.IntN(4)]
			if rng.IntN(20) == 0 {
				now += 23*time.Hour.Microseconds() - rng.Int64N(50_000)
			}
			var requests []Request
			by, more := []string{"push/0", "push/1", `st"range`, "x"}[rng.IntN(4)], rng.IntN(2) == 0
			of := slices.Clone(subjects)
			for i := range of {
				of[i].Weight = rng.IntN(5)
			}
			for range 1 + rng.IntN(5) {
				which := [][]Subject{of, of[:1], of[1:]}[rng.IntN(3)]
				for range 1 + rng.IntN(3) {
					requests = append(requests, Request{By: by, More: more, Subjects: which, Cost: 1 + rng.IntN(2)*rng.IntN(2), Gap: time.Duration(rng.IntN(2)*rng.IntN(3000)) * time.Microsecond})
				}
			}
			after, within := time.Duration(rng.IntN(3))*time.Millisecond, time.Duration(rng.IntN(4))*time.Millisecond
			var first []Decision
			for i, c := range contestants {
				c.set(now)
				all, err := New(c.store).ReserveMany(t.Context(), after, within, requests...)
				if err != nil {
					t.Fatal(c.name, err)
				}
				if first == nil {
					first = all
				}
				if diff := cmp.Diff(first, all, cmpopts.IgnoreUnexported(Decision{})); diff != "" {
					t.Fatalf("round %d, step %d: %v\n%s and %s differ:\n%s", round, step, requests, contestants[0].name, c.name, diff)
				}
				for k, d := range all {
					if d.Spent() != first[k].Spent() {
						t.Fatalf("round %d, step %d: %s has spent what %s has not", round, step, c.name, contestants[0].name)
					}
					if d.Spent() {
						granted[i] = append(granted[i], d)
					}
				}
			}
			if rng.IntN(4) == 0 {
				for _, c := range contestants {
					if err := New(c.store).CountRefused(t.Context(), Request{Subjects: of}, Request{Subjects: of[1:]}); err != nil {
						t.Fatal(c.name, err)
					}
				}
			}
			if n := len(granted[0]); n > 0 && rng.IntN(4) == 0 {
				k := rng.IntN(n)
				for i, c := range contestants {
					if err := New(c.store).Refund(t.Context(), granted[i][k]); err != nil {
						t.Fatal(err)
					}
					granted[i] = slices.Delete(granted[i], k, k+1)
				}
			}
		}
	}
	t.Run("miniredis", func(t *testing.T) {
		client := redistest.ExactMini(t)
		for round := range 15 {
			play(t, round, memoryContestant(), redisContestant(t, "miniredis", client))
		}
	})
	t.Run("redis", func(t *testing.T) {
		client := redistest.Start(t).Client(t)
		for round := range 60 {
			play(t, round, memoryContestant(), redisContestant(t, "redis", client), longContestant(t, "redis", client))
		}
	})
}

// Days, weeks and months begin where those of the zone do, also around a change of its clocks, and nothing is known of those that are far.
func TestCalendarsInRedis(t *testing.T) {
	paris, err := time.LoadLocation("Europe/Paris")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []contestant{memoryContestant(), redisContestant(t, "redis", redistest.Start(t).Client(t))} {
		for unit, begins := range map[string][]time.Time{
			"day":   {time.Date(2026, 3, 29, 0, 0, 0, 0, paris), time.Date(2026, 3, 30, 0, 0, 0, 0, paris), time.Date(2026, 3, 31, 0, 0, 0, 0, paris)},
			"week":  {time.Date(2026, 3, 23, 0, 0, 0, 0, paris), time.Date(2026, 3, 30, 0, 0, 0, 0, paris), time.Date(2026, 4, 6, 0, 0, 0, 0, paris)},
			"month": {time.Date(2026, 3, 1, 0, 0, 0, 0, paris), time.Date(2026, 4, 1, 0, 0, 0, 0, paris), time.Date(2026, 5, 1, 0, 0, 0, 0, paris)},
		} {
			now := time.Date(2026, 3, 29, 1, 0, 0, 0, paris)
			c.set(now.UnixMicro())
			l, of := New(c.store), Subject{Key: unit, Rules: []Rule{CalendarWindow(2, unit, "Europe/Paris")}}
			reserve := func(want time.Time) Decision {
				t.Helper()
				d, err := l.Reserve(t.Context(), 1, of)
				if err != nil || !d.Slot.Equal(want) {
					t.Errorf("%s: %s: %v, %v; want %v", c.name, unit, d.Slot.In(paris), err, want)
				}
				return d
			}
			for _, want := range []time.Time{now, now, begins[1], begins[1], begins[2]} {
				reserve(want)
			}
			c.set(begins[2].UnixMicro())
			last := reserve(begins[2])
			if err := l.Refund(t.Context(), last); err != nil {
				t.Fatal(err)
			}
			reserve(begins[2])
			if d, err := l.Peek(t.Context(), 1, of); err != nil || d.Outcome != Deferred || d.Remaining != 0 {
				t.Errorf("%s: %s: %+v, %v", c.name, unit, d, err)
			}
		}
	}
	store := redisContestant(t, "redis", redistest.Start(t).Client(t))
	store.set(time.Date(2026, 3, 29, 1, 0, 0, 0, paris).UnixMicro())
	for day := range 12 {
		d, err := New(store.store).Reserve(t.Context(), 1, Subject{Key: "far", Rules: []Rule{CalendarWindow(1, "day", "Europe/Paris")}})
		if fine := day < 11; (err == nil) != fine || !fine && !errors.Is(err, ErrImpossibleCost) {
			t.Errorf("day %d: %+v, %v", day, d, err)
		}
	}
}

// A caller that is near waits for the next period where one that is far has begun to use it.
func TestWhoIsDroppedBetweenPeriods(t *testing.T) {
	midnight := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	for _, rule := range []Rule{FixedWindow(2, 24*time.Hour), SlidingCounter(2, 24*time.Hour, 4), CalendarWindow(2, "day", "UTC")} {
		for _, c := range []contestant{memoryContestant(), redisContestant(t, "redis", redistest.Start(t).Client(t))} {
			c.set(midnight.Add(-3 * time.Millisecond).UnixMicro())
			for k, after := range []time.Duration{5 * time.Millisecond, time.Millisecond, time.Millisecond} {
				all, err := New(c.store).ReserveMany(t.Context(), after, 10*time.Millisecond, Request{By: after.String(), Subjects: []Subject{{Key: "k", Rules: []Rule{rule.OrDrop()}}}})
				if err != nil {
					t.Fatal(c.name, err)
				}
				if d := all[0]; d.Spent() != (k < 2) || d.Spent() && d.Slot.Before(midnight) || !d.Spent() && d.Outcome != Dropped {
					t.Errorf("%s, %v: request %d: %+v", c.name, rule, k, d)
				}
			}
		}
	}
}

func TestWhoTakesTurns(t *testing.T) {
	l := New(NewMemoryStore())
	of := func(by string, r Rule) Request {
		return Request{By: by, Subjects: []Subject{{Key: "k", Rules: []Rule{r}}}}
	}
	for name, all := range map[string][]Request{
		"a comma":       {of("a,b", Leak(1, time.Second))},
		"a semicolon":   {of("a;b", Leak(1, time.Second))},
		"a line break":  {of("a\nb", Leak(1, time.Second))},
		"two callers":   {of("a", Leak(1, time.Second)), of("b", Leak(1, time.Second))},
		"nobody, later": {of("a", Leak(1, time.Second)), of("", Leak(1, time.Second))},
	} {
		if _, err := l.ReserveMany(t.Context(), 0, 0, all...); err == nil {
			t.Errorf("%s has a turn", name)
		}
	}
}

// Turns that cannot be read are none: callers get slots, and take turns from then on.
func TestTurnsThatCannotBeRead(t *testing.T) {
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		const key = "rl{k}%turns"
		for name, spoil := range map[string]func(){
			"a list":     func() { client.LPush(t.Context(), key, "x") },
			"no numbers": func() { client.Set(t.Context(), key, "what;push/0,1,2;;,", 0) },
			"half":       func() { client.Set(t.Context(), key, "12;push/0,1,1,17636000", 0) },
		} {
			client.FlushAll(t.Context())
			spoil()
			l := New(NewRedisStore(client, "rl"))
			for n := range 3 {
				all, err := l.ReserveMany(t.Context(), 0, time.Minute, Request{By: "push/0", Subjects: []Subject{{Key: "k", Rules: []Rule{Leak(1, time.Second)}}}})
				if err != nil || !all[0].Spent() {
					t.Errorf("%s: call %d: %+v, %v", name, n, all, err)
				}
			}
			if kind := client.Type(t.Context(), key).Val(); kind != "string" {
				t.Errorf("%s: turns are a %s afterwards", name, kind)
			}
		}
	})
}

// After the clock was set back nobody waits for a caller of before, however long that is ahead by then.
func TestTurnsAfterTheClockWasSetBack(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC).UnixMicro()
	all := &turns{callers: map[string]*caller{"gone": {weight: 1, until: now + time.Hour.Microseconds()}, "here": {served: 5, weight: 1, until: now}}}
	if mine := all.enter("here", 1, now, 0); !mine.has {
		t.Error("a caller waits for one of before")
	}
}
