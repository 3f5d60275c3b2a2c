package throttle

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
)

// The stores agree about warm-ups around the midnights at which the next window comes, which may be smaller than the one before, or too small
// for a cost that a later one admits.
func TestStoresAgreeAboutWarmups(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	paris, err := time.LoadLocation("Europe/Paris")
	if err != nil {
		t.Fatal(err)
	}
	agreeAbout(t, func(rng *rand.Rand) (Rule, int64) {
		step := func() string { return fmt.Sprintf("%d/%dms", 1+rng.IntN(5), 10+rng.IntN(90)) }
		if rng.IntN(2) == 0 {
			step = func() string { return fmt.Sprintf("%d/day", 1+rng.IntN(5)) }
		}
		rule := Warmup("2026-03-27", fmt.Sprintf("1:%s,2:%s,3:%s,5:%s", step(), step(), step(), step()), "Europe/Paris")
		return rule, time.Date(2026, 3, 27+rng.IntN(6), 0, 0, 0, 0, paris).UnixMicro() - 150_000
	}, func(rng *rand.Rand) int64 {
		return []int64{rng.Int64N(50), rng.Int64N(20_000), -rng.Int64N(1000)}[rng.IntN(3)]
	})
}

// The stores agree about leaks with a ramp, which goes on, is over, or begins anew, and about those that get one or lose it.
func TestStoresAgreeAboutRamps(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	agreeAbout(t, func(rng *rand.Rand) (Rule, int64) {
		rule := Leak(1+rng.IntN(7), []time.Duration{10 * time.Millisecond, 3333 * time.Microsecond, 2 * time.Second}[rng.IntN(3)])
		if rng.IntN(4) > 0 {
			rule = rule.Ramping(time.Second + time.Duration(rng.IntN(1500))*time.Millisecond)
		}
		return rule, 1_763_600_000_123_457
	}, func(rng *rand.Rand) int64 {
		return []int64{rng.Int64N(50), rng.Int64N(20_000), rng.Int64N(900_000), rng.Int64N(3_000_000), -rng.Int64N(1000)}[rng.IntN(5)]
	})
}

// agreeAbout lets the stores decide about a rule of a kind with random options, which is changed now and then, beside others, and fails if they differ. The kind is told with the
// instant at which that begins, and how far the clock moves from one decision to the next.
func agreeAbout(t *testing.T, kind func(*rand.Rand) (Rule, int64), moves func(*rand.Rand) int64) {
	t.Helper()
	seed := sample.SeedOf(t)
	client := redistest.Start(t).Client(t)
	contestants := []contestant{memoryContestant(), redisContestant(t, "redis", client), longContestant(t, "redis", client)}
	agree := func(what string, decisions []Decision) {
		t.Helper()
		for i, d := range decisions {
			if diff := cmp.Diff(decisions[0], d, cmpopts.IgnoreUnexported(Decision{})); diff != "" || d.Spent() != decisions[0].Spent() {
				t.Fatalf("%s: %s and %s differ:\n%s", what, contestants[0].name, contestants[i].name, diff)
			}
		}
	}
	for round := range 80 {
		rng := rand.New(rand.NewPCG(seed, uint64(round)))
		option := []func(Rule) Rule{Rule.OrDrop, Rule.AsShadow, Rule.CountingDropped, func(r Rule) Rule { return r }, func(r Rule) Rule { return r }}[rng.IntN(5)]
		rule, now := kind(rng)
		rule = option(rule)
		subject := Subject{Key: fmt.Sprint(round), Rules: []Rule{rule}}
		if rng.IntN(2) == 0 { // which moves what a window allows to where the next one does not
			subject.Rules = append(subject.Rules, Leak(1, 40*time.Millisecond))
		}
		if !rule.CountsDropped() && rng.IntN(2) == 0 {
			subject.Slack = 20 * time.Millisecond
		}
		taken := make([][]Decision, len(contestants))
		for range 40 {
			now += moves(rng)
			if rng.IntN(10) == 0 {
				other, _ := kind(rng)
				rule = option(other)
				subject.Rules = append([]Rule{rule}, subject.Rules[1:]...)
			}
			verb, cost, decisions := rng.IntN(4), 1+rng.IntN(rule.Limit()), make([]Decision, len(contestants))
			refund := rng.IntN(6) == 0 && len(taken[0]) > 0
			contestants[0].set(now)
			if d, err := New(contestants[0].store).Peek(t.Context(), cost, subject); err != nil || d.RetryAfter > 5*24*time.Hour {
				verb = 1 // in Redis the periods far ahead are not known
			}
			which := rng.IntN(max(1, len(taken[0])))
			for i, c := range contestants {
				c.set(now)
				l, err := New(c.store), error(nil)
				switch {
				case refund:
					err = l.Refund(t.Context(), taken[i][which])
					taken[i] = append(taken[i][:which], taken[i][which+1:]...)
				case verb == 0:
					decisions[i], err = l.Peek(t.Context(), cost, subject)
				case verb == 1:
					decisions[i], err = l.Allow(t.Context(), cost, subject)
				default:
					decisions[i], err = l.Reserve(t.Context(), cost, subject)
				}
				if err != nil {
					t.Fatal(c.name, err)
				}
				if decisions[i].Spent() {
					taken[i] = append(taken[i], decisions[i])
				}
			}
			agree(fmt.Sprintf("round %d: %v %v, cost %d", round, rule, subject.Slack, cost), decisions)
		}
	}
}

// Which window holds is told by Redis's clock: a caller whose own is days ahead gets the window of the day all the same.
func TestAWarmupOfACallerWithAnotherClock(t *testing.T) {
	t.Parallel()
	c := redisContestant(t, "redis", redistest.Start(t).Client(t))
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	c.set(now.UnixMicro())
	c.store.(*redisStore).clock = func() time.Time { return now.AddDate(0, 0, 20) }
	subject := Subject{Key: "sender", Rules: []Rule{Warmup("2026-12-01", "1:2/24h,7:1000/24h", "UTC")}}
	for i, want := range []Outcome{Admitted, Admitted, Deferred} {
		if d, err := New(c.store).Allow(t.Context(), 1, subject); err != nil || d.Outcome != want {
			t.Errorf("%d: %+v, %v; want %v", i, d, err, want)
		}
	}
}
