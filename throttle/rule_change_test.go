package throttle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
)

// A shifting contest lets stores answer for a subject whose rules change all the time: in
// numbers, kind, options, and place. The memory store, whose rules are tested by
// themselves, says what is right.
type shifting struct {
	t           *testing.T
	contestants []contestant
	now         int64
	rules       []Rule
	granted     [][]Decision
	history     []string
}

func (c *shifting) fatal(format string, args ...any) {
	c.t.Helper()
	c.t.Fatalf("%s\n%s", strings.Join(c.history[max(0, len(c.history)-30):], "\n"), fmt.Sprintf(format, args...))
}

func texts(rules []Rule) (texts []string) {
	for _, r := range rules {
		text, _ := r.MarshalText()
		texts = append(texts, string(text))
	}
	return texts
}

func (c *shifting) decide(v verb, cost int) {
	var want Decision
	c.history = append(c.history, fmt.Sprintf("at %d: %s %d under %s", c.now, v, cost, texts(c.rules)))
	for i, contestant := range c.contestants {
		contestant.set(c.now)
		got, err := New(contestant.store).decide(c.t.Context(), newRequest(v, cost, []Subject{{Key: "u", Rules: c.rules}}))
		if err != nil {
			c.fatal("%s: %v", contestant.name, err)
		}
		if i == 0 {
			want = got
			c.history = append(c.history, fmt.Sprintf("  %v at %d by %s", got.Outcome, got.Slot.UnixMicro(), got.Rule))
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Decision{})); diff != "" {
			c.fatal("%s and memory (-) differ:\n%s", contestant.name, diff)
		}
		if got.spent != nil {
			c.granted[i] = append(c.granted[i], got)
		}
	}
}

func (c *shifting) refund(n int) {
	c.history = append(c.history, fmt.Sprintf("at %d: refund %d at %d", c.now, c.granted[0][n].spent.subjects[0].Cost, c.granted[0][n].spent.slot))
	for i, contestant := range c.contestants {
		contestant.set(c.now)
		if err := New(contestant.store).Refund(c.t.Context(), c.granted[i][n]); err != nil {
			c.fatal("%s: %v", contestant.name, err)
		}
		c.granted[i] = slices.Delete(c.granted[i], n, n+1)
	}
}

func (c *shifting) play(random *rand.Rand, steps int) {
	shapes := make([][]Rule, 3)
	for i := range shapes {
		for range 1 + random.IntN(3) {
			shapes[i] = append(shapes[i], randomRule(random.IntN))
		}
	}
	for range steps {
		switch random.IntN(8) {
		case 0, 1:
			c.rules = shapes[random.IntN(len(shapes))]
		case 2:
			c.now += random.Int64N(100_000)
		case 3, 4:
			c.now += random.Int64N(5_000)
		case 5:
			if n := len(c.granted[0]); n > 0 {
				c.refund(random.IntN(n))
			}
			continue
		}
		cost := 1 + max(0, random.IntN(6)-3)
		if c.rules != nil && checkCost(cost, c.rules) == nil {
			c.decide([]verb{verbAllow, verbAllow, verbReserve, verbPeek}[random.IntN(4)], cost)
		}
	}
}

func TestStoresAgreeWhileRulesChange(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	mini, real := redistest.ExactMini(t), redistest.Start(t).Client(t)
	contestants := []contestant{
		memoryContestant(), redisContestant(t, "miniredis", mini), longContestant(t, "miniredis", mini),
		redisContestant(t, "redis", real), longContestant(t, "redis", real),
	}
	seed := sample.SeedOf(t)
	for round := range uint64(100) {
		for _, contestant := range contestants {
			if err := New(contestant.store).Reset(t.Context(), "u"); err != nil {
				t.Fatal(err)
			}
		}
		c := &shifting{t: t, contestants: contestants, now: 1_763_600_000_123_457, granted: make([][]Decision, len(contestants))}
		c.play(rand.New(rand.NewPCG(seed, round)), 80)
	}
}
