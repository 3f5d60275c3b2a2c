package throttle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
)

// drivenTime replaces the clock of the scripts, and the expiry of keys with it, by one
// that the test sets: so that it can step back, and real and fake see the same instants.
const drivenTime = `
clock = function()
  local now = tonumber(redis.call('GET', 'now'))
  local due = redis.call('HGETALL', 'due')
  for i = 1, #due, 2 do
    if now >= tonumber(due[i + 1]) then
      redis.call('DEL', due[i])
      redis.call('HDEL', 'due', due[i])
    end
  end
  return now
end
local instead = {}
function instead.PSETEX(key, ttl, text)
  redis.call('SET', key, text)
  redis.call('HSET', 'due', key, int(tonumber(redis.call('GET', 'now')) + 1000 * ttl))
end
function instead.PEXPIRE(key, ttl)
  redis.call('HSET', 'due', key, int(tonumber(redis.call('GET', 'now')) + 1000 * ttl))
  return redis.call('EXISTS', key)
end
function instead.PTTL(key)
  return math.ceil((tonumber(redis.call('HGET', 'due', key) or 0) - tonumber(redis.call('GET', 'now'))) / 1000)
end
call = function(command, ...)
  return (instead[command] or function(...) return redis.call(command, ...) end)(...)
end
`

// A contestant is a store whose clock the test sets.
type contestant struct {
	name  string
	store Store
	set   func(now int64)
}

func memoryContestant() contestant {
	now := int64(0)
	store := NewMemoryStore().(*memoryStore)
	store.clock = func() time.Time { return time.UnixMicro(now) }
	return contestant{"memory", store, func(at int64) {
		now, store.sweep = at, 0
	}}
}

func redisContestant(t testing.TB, name string, client redis.UniversalClient) contestant {
	store := NewRedisStore(client, "rl").(*redisStore)
	return drivenContestant(t, name, client, store, drivenTime)
}

// longContestant keeps all logs but the shortest in lists.
func longContestant(t testing.TB, name string, client redis.UniversalClient) contestant {
	store := NewRedisStore(client, "long").(*redisStore)
	return drivenContestant(t, name+", long logs", client, store, drivenTime+"SHORT = 2\n")
}

func drivenContestant(t testing.TB, name string, client redis.UniversalClient, store *redisStore, prelude string) contestant {
	store.decider = script(prelude + decideLua)
	store.asker = script(prelude + turnsLua + askLua)
	store.refunds = script(prelude + refundLua)
	at := int64(0)
	store.clock = func() time.Time { return time.UnixMicro(at) }
	return contestant{name, store, func(now int64) {
		at = now
		if err := client.Set(t.Context(), "now", now, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}}
}

// A contest lets stores and the model answer the same requests.
type contest struct {
	t           testing.TB
	model       *modelWorld
	contestants []contestant
	now         int64
	granted     [][]Decision // by contestant, of those that spent something
	asked       []asked
	history     []string
}

type asked struct {
	keys     []string
	slot     int64
	costs    []int
	objected bool
}

func newContest(t testing.TB, subjects []Subject, contestants ...contestant) *contest {
	c := &contest{t: t, model: &modelWorld{map[string]*modelSubject{}}, contestants: contestants, now: 1_763_600_000_123_457}
	for _, s := range subjects {
		c.model.subjects[s.Key] = newModelSubject(s)
	}
	c.granted = make([][]Decision, len(contestants))
	return c
}

// decide asks for an action that costs so much of each subject.
func (c *contest) decide(v verb, costs []int, keys ...string) {
	c.decideWithin(v, bounds{}, costs, keys...)
}

// decideWithin does so where the slot has bounds.
func (c *contest) decideWithin(v verb, b bounds, costs []int, keys ...string) {
	want := c.model.decide(v, b, costs, c.now, keys)
	var subjects []Subject
	for i, key := range keys {
		subject := c.model.subjects[key].Subject
		if subject.Cost = costs[i]; costs[i] == costs[0] {
			subject.Cost = 0 // the action's
		}
		subjects = append(subjects, subject)
	}
	full := Decision{
		Outcome: want.Outcome, Slot: time.UnixMicro(want.Slot), RetryAfter: micros(want.Slot - c.now),
		Remaining: want.Remaining, ResetAfter: micros(max(0, want.Full-c.now)), Subject: want.Subject,
	}
	for _, s := range subjects {
		if want.Rule > 0 && s.Key == want.Subject {
			full.Rule, full.Limit = s.Rules[want.Rule-1].String(), s.Rules[want.Rule-1].most()
		}
	}
	next := micros(-1) // as the first contestant says; the others have to agree
	c.history = append(c.history, fmt.Sprintf("at %d: %s %d %v: %v at %d", c.now, v, costs, keys, want.Outcome, want.Slot))
	for i, contestant := range c.contestants {
		contestant.set(c.now)
		request := newRequest(v, costs[0], subjects)
		request.bounds = b
		got, err := New(contestant.store).decide(c.t.Context(), request)
		if err != nil {
			c.fatal("%s: %v", contestant.name, err)
		}
		if (got.Shadow != "") != (want.Shadow > 0) || (got.spent != nil) != want.Spent {
			c.fatal("%s: shadow %q, spent %v; the model says %+v", contestant.name, got.Shadow, got.spent != nil, want)
		}
		if next < 0 {
			next = got.NextAfter
		}
		full.NextAfter = next
		if diff := cmp.Diff(full, got, cmpopts.IgnoreUnexported(Decision{}), cmpopts.IgnoreFields(Decision{}, "Shadow")); diff != "" {
			c.fatal("%s and the model (-) differ:\n%s", contestant.name, diff)
		}
		if want.Spent {
			c.granted[i] = append(c.granted[i], got)
		}
	}
	if want.Spent {
		c.asked = append(c.asked, asked{keys, want.Slot, costs, want.Shadow > 0})
	}
}

func (c *contest) refund(i int) {
	a := c.asked[i]
	c.history = append(c.history, fmt.Sprintf("at %d: refund %d of %v at %d", c.now, a.costs, a.keys, a.slot))
	c.model.refund(a.keys, a.costs, a.slot, c.now, a.objected)
	c.asked = append(c.asked[:i], c.asked[i+1:]...)
	for j, contestant := range c.contestants {
		contestant.set(c.now)
		if err := New(contestant.store).Refund(c.t.Context(), c.granted[j][i]); err != nil {
			c.fatal("%s: %v", contestant.name, err)
		}
		c.granted[j] = append(c.granted[j][:i], c.granted[j][i+1:]...)
	}
}

func (c *contest) reset(key string) {
	c.history = append(c.history, fmt.Sprintf("at %d: reset %s", c.now, key))
	c.model.subjects[key] = newModelSubject(c.model.subjects[key].Subject)
	for _, contestant := range c.contestants {
		if err := New(contestant.store).Reset(c.t.Context(), key); err != nil {
			c.fatal("%s: %v", contestant.name, err)
		}
	}
}

func (c *contest) fatal(format string, args ...any) {
	c.t.Helper()
	rules := ""
	for key, s := range c.model.subjects {
		rules += fmt.Sprintf("%s: %+v\n", key, s.Rules)
	}
	c.t.Fatalf("%s%s\n%s", rules, strings.Join(c.history[max(0, len(c.history)-30):], "\n"), fmt.Sprintf(format, args...))
}

// dice makes the choices of a contest: from a seed, or from what a fuzzer found.
type dice func(n int) int

func randomRule(roll dice) Rule {
	per := []time.Duration{1000, 3333, 10007, 50000, 7}[roll(5)] * time.Microsecond
	n := 1 + roll(5)
	rule := []Rule{
		Leak(n, per), TokenBucket(n, per, 1+roll(6)), Window(n, per), Spacing((per / 3).Truncate(time.Microsecond)),
		FixedWindow(n, per), SlidingCounter(n, per, 2), SlidingCounter(n, per, 3+roll(3)),
	}[roll(7)]
	switch roll(8) {
	case 0:
		rule = rule.OrDrop()
	case 1:
		rule = rule.AsShadow()
	case 2:
		rule = rule.CountingDropped()
	case 3:
		rule = rule.OrDrop().CountingDropped()
	}
	return rule
}

// play lets the contestants answer random requests under random rules.
func play(t testing.TB, roll dice, steps int, contestants ...contestant) {
	var subjects []Subject
	for _, key := range []string{"a", "b"} {
		s := Subject{Key: key}
		for range 1 + roll(3) {
			s.Rules = append(s.Rules, randomRule(roll))
		}
		if slack := micros(int64(roll(3) * 1500)); !slices.ContainsFunc(s.Rules, func(r Rule) bool { return !r.slackens(slack) }) {
			s.Slack = slack
		}
		subjects = append(subjects, s)
	}
	c := newContest(t, subjects, contestants...)
	for _, s := range subjects {
		c.reset(s.Key)
	}
	for range steps {
		switch roll(12) {
		case 0:
			c.now -= int64(roll(5000))
		case 1, 2, 3:
			c.now += int64(roll(20_000))
		case 4, 5:
			c.now += int64(roll(50))
		case 6:
			if len(c.asked) > 0 {
				c.refund(roll(len(c.asked)))
			}
			continue
		case 7:
			if roll(10) == 0 {
				c.reset([]string{"a", "b"}[roll(2)])
			}
			continue
		}
		keys := [][]string{{"a"}, {"b"}, {"a", "b"}}[roll(3)]
		var costs []int
		possible, alike := true, roll(2) == 0
		for i, key := range keys {
			costs = append(costs, 1+max(0, roll(6)-3))
			if alike {
				costs[i] = costs[0]
			}
			possible = possible && checkCost(costs[i], c.model.subjects[key].Rules) == nil
		}
		if possible {
			v := []verb{verbAllow, verbAllow, verbReserve, verbPeek, verbCount}[roll(5)]
			if v == verbReserve && roll(2) == 0 {
				c.decideWithin(v, bounds{after: micros(int64(roll(3) * 1000)), within: micros(int64(roll(3) * 5000)), bounded: true}, costs, keys...)
				continue
			}
			c.decide(v, costs, keys...)
		}
	}
}

// Memory, the fake Redis and the real one answer as the model does, whatever the rules,
// costs and times, and whichever way the clock steps.
func TestStoresAgree(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	seed := sample.SeedOf(t)
	run := func(t *testing.T, rounds int, contestants ...contestant) {
		for round := range rounds {
			random := rand.New(rand.NewPCG(seed, uint64(round)))
			play(t, random.IntN, 60, contestants...)
		}
	}
	t.Run("memory", func(t *testing.T) { run(t, 100, memoryContestant()) })
	t.Run("miniredis", func(t *testing.T) {
		client := redistest.ExactMini(t)
		run(t, 15, memoryContestant(), redisContestant(t, "miniredis", client), longContestant(t, "miniredis", client))
	})
	t.Run("redis", func(t *testing.T) {
		client := redistest.Start(t).Client(t)
		run(t, 30, memoryContestant(), redisContestant(t, "redis", client), longContestant(t, "redis", client))
	})
}

func FuzzStoresAgree(f *testing.F) {
	f.Add([]byte("some random rules and requests, whatever they may be: the fuzzer finds more"))
	f.Fuzz(func(t *testing.T, data []byte) {
		next, client := 0, redistest.ExactMini(t)
		play(t, func(n int) int {
			if next >= len(data) {
				return 0
			}
			next++
			return int(data[next-1]) % n
		}, min(200, len(data)/3), memoryContestant(),
			redisContestant(t, "miniredis", client), longContestant(t, "miniredis", client))
	})
}
