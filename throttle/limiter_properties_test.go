package throttle

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
)

// everyRule is one rule of each kind, all of which admit a cost of 3 at most or more.
func everyRule(per time.Duration) []Rule {
	return []Rule{
		Leak(3, per), TokenBucket(3, per, 5), Window(3, per), Spacing(per),
		FixedWindow(3, per), SlidingCounter(3, per, 2), SlidingCounter(3, per, 4),
	}
}

// Waiting exactly RetryAfter is always enough, one microsecond less never is.
func TestRetryAfterIsExact(t *testing.T) {
	t.Parallel()
	for round := range 300 {
		random := rand.New(rand.NewPCG(7, uint64(round)))
		c := memoryContestant()
		limiter := New(c.store)
		subject := Subject{Key: "u"}
		for range 1 + random.IntN(3) {
			rule := randomRule(random.IntN)
			rule.drop, rule.shadow, rule.counts = false, false, false
			subject.Rules = append(subject.Rules, rule)
		}
		now := int64(1_763_600_000_000_001)
		at := func(now int64, cost int, v verb) Decision {
			c.set(now)
			d, err := limiter.decide(t.Context(), newRequest(v, cost, []Subject{subject}))
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		for range 40 {
			cost := 1 + random.IntN(2)
			if checkCost(cost, subject.Rules) != nil {
				continue
			}
			now += random.Int64N(3000)
			d := at(now, cost, []verb{verbAllow, verbReserve}[random.IntN(2)])
			if d.spent != nil {
				continue
			}
			patient := now + d.RetryAfter.Microseconds()
			if early := at(patient-1, cost, verbPeek); early.Outcome != Deferred || early.RetryAfter != time.Microsecond {
				t.Fatalf("%v: a microsecond less than %v: %+v", subject.Rules, d.RetryAfter, early)
			}
			if exact := at(patient, cost, verbPeek); exact.Outcome != Admitted {
				t.Fatalf("%v: after exactly %v: %+v", subject.Rules, d.RetryAfter, exact)
			}
		}
	}
}

// dumpAll returns every key of the limiter with its value and its expiry.
func dumpAll(t *testing.T, client redis.UniversalClient) string {
	text, err := client.Eval(t.Context(), `
		local keys, all = redis.call('KEYS', 'rl*'), {}
		table.sort(keys)
		for _, key in ipairs(keys) do
			local list = redis.call('TYPE', key).ok == 'list'
			local value = list and table.concat(redis.call('LRANGE', key, 0, -1), ',') or redis.call('GET', key)
			all[#all + 1] = key .. '=' .. value .. ' until ' .. tostring(redis.call('HGET', 'due', key))
		end
		return table.concat(all, '\n')`, nil).Text()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// What is refused, dropped or only asked changes nothing: no value and no expiry.
func TestRefusedChangesNothing(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		c := redisContestant(t, "redis", client)
		for round := range 8 {
			random := rand.New(rand.NewPCG(11, uint64(round)))
			if err := client.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			subjects := []Subject{{Key: "a"}, {Key: "b"}}
			for i := range subjects {
				for range 2 {
					rule := randomRule(random.IntN)
					rule.counts = false
					subjects[i].Rules = append(subjects[i].Rules, rule)
				}
			}
			now, refused := int64(1_763_600_000_000_001), 0
			for range 60 {
				now += random.Int64N(2000)
				c.set(now)
				before := dumpAll(t, client)
				v := []verb{verbAllow, verbReserve, verbPeek}[random.IntN(3)]
				d, err := New(c.store).decide(t.Context(), newRequest(v, 1, subjects))
				if err != nil {
					t.Fatal(err)
				}
				after := dumpAll(t, client)
				if d.spent == nil && !isSubset(after, before) {
					t.Fatalf("%s, %v: %s changed\n%s\nto\n%s", v, subjects, d.Outcome, before, after)
				}
				if d.spent == nil {
					refused++
				}
			}
			if refused == 0 {
				t.Errorf("%v: nothing was refused", subjects)
			}
		}
	})
}

// isSubset tells whether each line of a is one of b: keys may expire, and nothing else.
func isSubset(a, b string) bool {
	for line := range strings.Lines(a) {
		if !strings.Contains(b+"\n", strings.TrimSuffix(line, "\n")+"\n") {
			return false
		}
	}
	return true
}

// A key lives as long as its state, to the millisecond, and an idle subject leaves none.
func TestKeysExpire(t *testing.T) {
	t.Parallel()
	const per = 1900 * time.Millisecond // no whole seconds: who rounds down lets too many through
	for _, rule := range append(everyRule(per), Window(3, 1500*time.Microsecond), Leak(1, 10*time.Microsecond)) {
		t.Run(rule.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := redistest.ExactMini(t)
				limiter := New(NewRedisStore(client, "rl"))
				rule := rule.CountingDropped()
				subject := Subject{Key: "u", Rules: []Rule{rule, rule.AsShadow()}}
				for _, cost := range []int{1, 1, rule.most(), 1, rule.most()} {
					if _, err := limiter.Reserve(t.Context(), cost, subject); err != nil {
						t.Fatal(err)
					}
					if _, err := limiter.Allow(t.Context(), cost, subject); err != nil {
						t.Fatal(err)
					}
					time.Sleep(per / 7)
				}
				keys := client.Keys(t.Context(), "*").Val()
				for _, key := range keys {
					if client.PTTL(t.Context(), key).Val() <= 0 {
						t.Errorf("%s has no expiry", key)
					}
				}
				whole, err := limiter.Peek(t.Context(), rule.most(), subject)
				if err != nil {
					t.Fatal(err)
				}
				if whole.ResetAfter < whole.RetryAfter {
					t.Errorf("as new after %v, but its whole room is there after %v", whole.ResetAfter, whole.RetryAfter)
				}
				if whole.ResetAfter > 0 {
					time.Sleep(whole.ResetAfter - time.Microsecond)
					if len(client.Keys(t.Context(), "*").Val()) == 0 {
						t.Errorf("no key a microsecond before the state is as new")
					}
				}
				time.Sleep(21*time.Millisecond + time.Microsecond)
				if left := client.Keys(t.Context(), "rl*[^w]").Val(); len(left) != 0 {
					t.Errorf("%v left of an idle subject", left)
				}
				time.Sleep(4 * per)
				if left := client.DBSize(t.Context()).Val(); left != 0 {
					t.Errorf("%d keys left of an idle subject", left)
				}
			})
		})
	}
}

// A changed rule finds the state of the old one, clipped to what it could have made. Tokens
// that a bucket lacks come back at the new rate.
func TestChangedRules(t *testing.T) {
	t.Parallel()
	const sec, ms = time.Second, time.Millisecond
	tests := map[string]struct {
		before, after Rule
		spend         int           // of cost 1, at 0
		at            time.Duration // of the change
		slot          time.Duration // of cost 1 then
	}{
		"leak, loosened":            {Leak(1, 10*sec), Leak(1, sec), 1, 500 * ms, sec},
		"leak, tightened":           {Leak(1, sec), Leak(1, 10*sec), 1, 500 * ms, 10 * sec},
		"token bucket, loosened":    {TokenBucket(1, 10*sec, 2), TokenBucket(1, sec, 2), 2, 500 * ms, sec},
		"token bucket, tightened":   {TokenBucket(1, sec, 10), TokenBucket(1, 10*sec, 10), 10, sec, 10 * sec},
		"token bucket, more burst":  {TokenBucket(1, sec, 1), TokenBucket(1, sec, 5), 1, 100 * ms, 100 * ms},
		"token bucket, less burst":  {TokenBucket(1, sec, 10), TokenBucket(1, sec, 1), 10, 100 * ms, sec},
		"window, more":              {Window(2, 10*sec), Window(3, 10*sec), 2, sec, sec},
		"window, fewer":             {Window(5, 10*sec), Window(2, 10*sec), 5, sec, 10 * sec},
		"window, shorter":           {Window(2, 10*sec), Window(2, 3*sec), 2, sec, 3 * sec},
		"window, longer":            {Window(2, 3*sec), Window(2, 10*sec), 2, sec, 10 * sec},
		"spacing, shorter":          {Spacing(10 * sec), Spacing(sec), 1, 500 * ms, sec},
		"spacing, longer":           {Spacing(sec), Spacing(10 * sec), 1, 500 * ms, 10 * sec},
		"window, becomes a spacing": {Window(2, 10*sec), Spacing(3 * sec), 1, sec, 3 * sec},
		"fixed window, more":        {FixedWindow(2, 10*sec), FixedWindow(3, 10*sec), 2, sec, sec},
		"fixed window, fewer":       {FixedWindow(5, 10*sec), FixedWindow(2, 10*sec), 5, sec, 10 * sec},
		"fixed window, shorter":     {FixedWindow(2, 10*sec), FixedWindow(2, sec), 2, sec, sec},
		"fixed window, longer":      {FixedWindow(2, sec), FixedWindow(2, 10*sec), 2, 500 * ms, 10 * sec},
		"sliding counter, more":     {SlidingCounter(2, 10*sec, 2), SlidingCounter(3, 10*sec, 2), 2, sec, sec},
		"sliding counter, fewer":    {SlidingCounter(4, 10*sec, 2), SlidingCounter(2, 10*sec, 2), 4, sec, 17500 * ms},
		"ring, fewer buckets":       {SlidingCounter(2, 10*sec, 10), SlidingCounter(2, 10*sec, 5), 2, sec, 10 * sec},
		"another kind starts anew":  {Leak(1, 10*sec), Window(1, 10*sec), 1, sec, sec},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, c := range []contestant{memoryContestant(), redisContestant(t, "miniredis", redistest.ExactMini(t))} {
				begin := time.Unix(1_763_600_000, 0)
				limiter := New(c.store)
				c.set(begin.UnixMicro())
				for range test.spend {
					if d, err := limiter.Allow(t.Context(), 1, Subject{Key: "u", Rules: []Rule{test.before}}); err != nil || d.Outcome != Admitted {
						t.Fatalf("%s: %+v, %v", c.name, d, err)
					}
				}
				c.set(begin.Add(test.at).UnixMicro())
				d, err := limiter.Peek(t.Context(), 1, Subject{Key: "u", Rules: []Rule{test.after}})
				if err != nil || d.Slot.Sub(begin) != test.slot {
					t.Errorf("%s: slot %v, want %v (%v)", c.name, d.Slot.Sub(begin), test.slot, err)
				}
			}
		})
	}
}

// What is wrong with one request of a batch is not the others' trouble, and what failed
// has spent nothing.
func TestErrorsStayApart(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		limiter := New(NewRedisStore(client, "rl"))
		rules := []Rule{Window(2, time.Hour)}
		if err := client.LPush(t.Context(), "rl{broken}", "not a string").Err(); err != nil {
			t.Fatal(err)
		}
		var requests []Request
		for i := range 40 {
			key := fmt.Sprint(i)
			if i == 20 {
				requests = append(requests, Request{Subjects: []Subject{{Key: key, Rules: rules}, {Key: "broken", Rules: rules}}})
			} else {
				requests = append(requests, Request{Subjects: []Subject{{Key: key, Rules: rules}}})
			}
		}
		decisions, err := limiter.AllowMany(t.Context(), requests...)
		if err == nil || !strings.Contains(err.Error(), "request 20") || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("error %v, want request 20 to have the wrong type", err)
		}
		for i, d := range decisions {
			if want := i != 20; (d.Outcome == Admitted) != want {
				t.Errorf("request %d: %+v", i, d)
			}
		}
		if decisions[20].Outcome != Undecided {
			t.Errorf("the one that failed: %+v", decisions[20])
		}
		if d, err := limiter.Peek(t.Context(), 1, Subject{Key: "20", Rules: rules}); err != nil || d.Remaining != 2 {
			t.Errorf("what failed has spent: %+v, %v", d, err)
		}
	})
}

// Many at once on one key: exactly the limit is admitted, and who gives up is not served.
func TestManyCallersAtOnce(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]Store{"memory": NewMemoryStore(), "redis": NewRedisStore(redistest.Start(t).Client(t), "rl")} {
		limiter := New(store)
		subject := Subject{Key: "u", Rules: []Rule{Window(100, time.Hour), Leak(1_000_000, time.Millisecond)}}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		var admitted, abandoned atomic.Int64
		var group sync.WaitGroup
		for i := range 64 {
			group.Go(func() {
				for range 30 {
					ctx := t.Context()
					if i%8 == 0 {
						ctx = gone
					}
					d, err := limiter.Reserve(ctx, 1, Subject{Key: subject.Key, Rules: subject.Rules[:1]})
					switch {
					case errors.Is(err, context.Canceled):
						abandoned.Add(1)
					case err != nil:
						t.Error(err)
					case d.Outcome == Admitted:
						admitted.Add(1)
					}
				}
			})
		}
		group.Wait()
		if admitted.Load() != 100 || abandoned.Load() != 8*30 {
			t.Errorf("%s: %d admitted, want 100; %d abandoned, want 240", name, admitted.Load(), abandoned.Load())
		}
	}
}
