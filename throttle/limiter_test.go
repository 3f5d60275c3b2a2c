package throttle_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/throttle"
)

const (
	ms  = time.Millisecond
	sec = time.Second
	us  = time.Microsecond
)

// A step asks the limiter at an instant, counted from the first.
type step struct {
	at        time.Duration
	verb      string
	cost      int
	outcome   throttle.Outcome
	slot      time.Duration
	rule      string
	remaining int
}

func TestRules(t *testing.T) {
	t.Parallel()
	const admitted, deferred, dropped = throttle.Admitted, throttle.Deferred, throttle.Dropped
	tests := map[string]struct {
		rules []throttle.Rule
		steps []step
	}{
		"leak is even": {[]throttle.Rule{throttle.Leak(50, sec)}, []step{
			{0, "allow", 1, admitted, 0, "leak 50/s", 0},
			{0, "allow", 1, deferred, 20 * ms, "leak 50/s", 0},
			{20*ms - us, "allow", 1, deferred, 20 * ms, "leak 50/s", 0},
			{20 * ms, "allow", 1, admitted, 20 * ms, "leak 50/s", 0},
		}},
		"leak saves nothing up": {[]throttle.Rule{throttle.Leak(50, sec)}, []step{
			{0, "allow", 1, admitted, 0, "leak 50/s", 0},
			{sec, "allow", 1, admitted, sec, "leak 50/s", 0},
			{sec, "allow", 1, deferred, sec + 20*ms, "leak 50/s", 0},
		}},
		"leak does not drift": {[]throttle.Rule{throttle.Leak(3, sec)}, []step{
			{0, "reserve", 1, admitted, 0, "leak 3/s", 0},
			{0, "reserve", 1, deferred, 333334 * us, "leak 3/s", 0},
			{0, "reserve", 1, deferred, 666667 * us, "leak 3/s", 0},
			{0, "reserve", 1, deferred, sec, "leak 3/s", 0},
			{0, "reserve", 3, deferred, 1333334 * us, "leak 3/s", 0},
			{0, "peek", 1, deferred, 2333334 * us, "leak 3/s", 0},
		}},
		"window rolls": {[]throttle.Rule{throttle.Window(2, sec)}, []step{
			{0, "allow", 1, admitted, 0, "window 2/1s", 1},
			{400 * ms, "allow", 1, admitted, 400 * ms, "window 2/1s", 0},
			{500 * ms, "allow", 1, deferred, sec, "window 2/1s", 0},
			{sec - us, "allow", 1, deferred, sec, "window 2/1s", 0},
			{sec, "allow", 1, admitted, sec, "window 2/1s", 0},
			{sec, "allow", 1, deferred, 1400 * ms, "window 2/1s", 0},
			{10 * sec, "allow", 2, admitted, 10 * sec, "window 2/1s", 0},
			{10 * sec, "peek", 1, deferred, 11 * sec, "window 2/1s", 0},
		}},
		"window reserves ahead": {[]throttle.Rule{throttle.Window(2, sec)}, []step{
			{0, "reserve", 2, admitted, 0, "window 2/1s", 0},
			{0, "reserve", 1, deferred, sec, "window 2/1s", 0},
			{0, "reserve", 1, deferred, sec, "window 2/1s", 0},
			{0, "reserve", 1, deferred, 2 * sec, "window 2/1s", 0},
		}},
		"spacing": {[]throttle.Rule{throttle.Spacing(3 * sec)}, []step{
			{0, "allow", 1, admitted, 0, "spacing 3s", 0},
			{3*sec - us, "allow", 1, deferred, 3 * sec, "spacing 3s", 0},
			{3 * sec, "allow", 5, admitted, 3 * sec, "spacing 3s", 0},
			{3 * sec, "allow", 1, deferred, 6 * sec, "spacing 3s", 0},
		}},
		"the strictest binds": {[]throttle.Rule{throttle.Window(2, 10*sec), throttle.Spacing(3 * sec)}, []step{
			{0, "allow", 1, admitted, 0, "spacing 3s", 0},
			{sec, "allow", 1, deferred, 3 * sec, "spacing 3s", 0},
			{3 * sec, "allow", 1, admitted, 3 * sec, "window 2/10s", 0},
			{4 * sec, "allow", 1, deferred, 10 * sec, "window 2/10s", 0},
		}},
		"drop": {[]throttle.Rule{throttle.Spacing(sec), throttle.Window(2, 10*sec).OrDrop()}, []step{
			{0, "allow", 1, admitted, 0, "spacing 1s", 0},
			{sec, "allow", 1, admitted, sec, "spacing 1s", 0},
			{2 * sec, "allow", 1, dropped, 2 * sec, "window 2/10s", 0},
			{2 * sec, "reserve", 1, dropped, 2 * sec, "window 2/10s", 0},
			{10 * sec, "allow", 1, admitted, 10 * sec, "spacing 1s", 0},
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := throttle.New(throttle.NewRedisStore(redistest.ExactMini(t), "rl"))
				begin := time.Now()
				for _, s := range test.steps {
					time.Sleep(time.Until(begin.Add(s.at)))
					d := ask(t, limiter, s.verb, s.cost, throttle.Subject{Key: "u", Rules: test.rules})
					want := throttle.Decision{
						Outcome: s.outcome, Slot: begin.Add(s.slot), RetryAfter: s.slot - s.at, Rule: s.rule, Remaining: s.remaining,
						Subject: "u", Limit: d.Limit, NextAfter: d.NextAfter, ResetAfter: d.ResetAfter,
					}
					if !d.Slot.Equal(want.Slot) {
						t.Errorf("at %v: %s %d: slot after %v, want %v", s.at, s.verb, s.cost, d.Slot.Sub(begin), s.slot)
					}
					if want.Slot = d.Slot; !same(d, want) {
						t.Errorf("at %v: %s %d:\n got %+v\nwant %+v", s.at, s.verb, s.cost, d, want)
					}
				}
			})
		})
	}
}

func ask(t *testing.T, l *throttle.Limiter, verb string, cost int, s ...throttle.Subject) throttle.Decision {
	t.Helper()
	verbs := map[string]func() (throttle.Decision, error){
		"allow":   func() (throttle.Decision, error) { return l.Allow(t.Context(), cost, s...) },
		"reserve": func() (throttle.Decision, error) { return l.Reserve(t.Context(), cost, s...) },
		"peek":    func() (throttle.Decision, error) { return l.Peek(t.Context(), cost, s...) },
	}
	d, err := verbs[verb]()
	if err != nil {
		t.Fatalf("%s %d: %v", verb, cost, err)
	}
	return d
}

func TestAllOrNone(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		limiter := throttle.New(throttle.NewRedisStore(client, "rl"))
		tenant := throttle.Subject{Key: "tenant", Rules: []throttle.Rule{throttle.Window(5, time.Hour)}}
		user := throttle.Subject{Key: "user", Rules: []throttle.Rule{throttle.Window(1, time.Hour), throttle.Leak(1, time.Hour)}}
		if d := ask(t, limiter, "allow", 1, tenant, user); d.Outcome != throttle.Admitted {
			t.Fatalf("first: %+v", d)
		}
		before := dump(t, client)
		if d := ask(t, limiter, "allow", 1, tenant, user); d.Outcome != throttle.Deferred || d.Subject != "user" || d.RetryAfter <= 0 {
			t.Errorf("second: %+v, want it deferred by the user", d)
		}
		dropping := throttle.Subject{Key: "user", Rules: []throttle.Rule{throttle.Window(1, time.Hour).OrDrop()}}
		if d := ask(t, limiter, "reserve", 1, tenant, dropping); d.Outcome != throttle.Dropped || d.Rule != "window 1/1h" {
			t.Errorf("third: %+v, want it dropped by the window", d)
		}
		if after := dump(t, client); after != before {
			t.Errorf("what was not admitted changed the state:\n%s\n%s", before, after)
		}
		if d := ask(t, limiter, "peek", 1, tenant); d.Remaining != 4 || d.Limit != 5 {
			t.Errorf("tenant: %+v, want 4 of 5 remaining", d)
		}
	})
}

// dump returns every key with its value.
func dump(t *testing.T, client redis.UniversalClient) string {
	t.Helper()
	text, err := client.Eval(t.Context(), `
		local keys = redis.call('KEYS', '*')
		table.sort(keys)
		local all = {}
		for _, key in ipairs(keys) do
			local list = redis.call('TYPE', key).ok == 'list'
			local value = list and table.concat(redis.call('LRANGE', key, 0, -1), ',') or redis.call('GET', key)
			all[#all + 1] = key .. '=' .. value
		end
		return table.concat(all, '\n')`, nil).Text()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestStateExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.ExactMini(t)
		limiter := throttle.New(throttle.NewRedisStore(client, "rl"))
		subject := throttle.Subject{Key: "u", Rules: []throttle.Rule{throttle.Window(2, sec), throttle.Leak(1, sec)}}
		ask(t, limiter, "allow", 1, subject)
		ask(t, limiter, "reserve", 1, subject)
		time.Sleep(2*sec - ms)
		if n := client.DBSize(t.Context()).Val(); n != 1 {
			t.Errorf("%d keys while they are needed, want 1", n)
		}
		time.Sleep(22 * ms)
		if n := client.DBSize(t.Context()).Val(); n != 0 {
			t.Errorf("%d keys when nothing is known any more, want none", n)
		}
	})
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	limiter := throttle.New(throttle.NewRedisStore(redistest.ExactMini(t), "rl"))
	tests := map[string]struct {
		rule throttle.Rule
		cost int
		want error
	}{
		"zero rule":       {throttle.Rule{}, 1, throttle.ErrInvalidRule},
		"zero per second": {throttle.Leak(0, sec), 1, throttle.ErrInvalidRule},
		"no period":       {throttle.Window(1, 0), 1, throttle.ErrInvalidRule},
		"negative":        {throttle.Spacing(-sec), 1, throttle.ErrInvalidRule},
		"a nanosecond":    {throttle.Spacing(1), 1, throttle.ErrInvalidRule},
		"a negative cost": {throttle.Leak(1, sec), -1, throttle.ErrImpossibleCost},
		"cost 3 of 2":     {throttle.Window(2, sec), 3, throttle.ErrImpossibleCost},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := limiter.Allow(t.Context(), test.cost, throttle.Subject{Key: "u", Rules: []throttle.Rule{test.rule}})
			if !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

func TestRuleString(t *testing.T) {
	t.Parallel()
	tests := map[string]throttle.Rule{
		"leak 50/s":         throttle.Leak(50, sec),
		"leak 1/1m":         throttle.Leak(1, time.Minute),
		"window 10/1m":      throttle.Window(10, time.Minute),
		"window 50/24h":     throttle.Window(50, 24*time.Hour),
		"window 5/1h30m":    throttle.Window(5, 90*time.Minute),
		"window 7/10s":      throttle.Window(7, 10*sec),
		"spacing 3s":        throttle.Spacing(3 * sec),
		"spacing 25ms":      throttle.Spacing(25 * ms),
		"spacing 1h0m0.5s":  throttle.Spacing(time.Hour + 500*ms),
		"spacing 1h10m":     throttle.Spacing(70 * time.Minute),
		"window 1/2540400h": throttle.Window(1, 2540400*time.Hour),
	}
	for want, rule := range tests {
		if got := rule.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// same compares what decisions say; what they can refund is their own.
func same(a, b throttle.Decision) bool {
	return cmp.Equal(a, b, cmpopts.IgnoreUnexported(throttle.Decision{}))
}

// The limiter in memory knows warm-ups.
func TestAWarmupInMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // it begins at midnight, on 2000-01-01
		limiter := throttle.New(throttle.NewMemoryStore())
		rules := []throttle.Rule{throttle.Warmup("2000-01-01", "1:50/24h,2:100/24h,4:200/24h", "").OrDrop()}
		for day, want := range []int{50, 100, 100, 200, 200} {
			admitted := 0
			for range 300 {
				d, err := limiter.Allow(t.Context(), 1, throttle.Subject{Key: "ip", Rules: rules})
				if err != nil {
					t.Fatal(err)
				}
				if d.Outcome == throttle.Admitted {
					admitted++
				}
			}
			if admitted != want {
				t.Errorf("day %d: %d admitted, want %d", day+1, admitted, want)
			}
			time.Sleep(24 * time.Hour)
		}
	})
}

// Slots of ReserveMany are as near and as far as was asked for. What was not taken is not spent.
func TestReserveMany(t *testing.T) {
	t.Parallel()
	for name, store := range stores(t) {
		t.Run(name, func(t *testing.T) {
			limiter := throttle.New(store)
			requests := make([]throttle.Request, 10)
			for i := range requests {
				requests[i].Subjects = []throttle.Subject{{Key: "many", Rules: []throttle.Rule{throttle.Leak(1, time.Minute)}}}
			}
			many, err := limiter.ReserveMany(t.Context(), 5*time.Minute, 3*time.Minute+30*time.Second, requests...)
			if err != nil || len(many) != 10 {
				t.Fatal(many, err)
			}
			for i, d := range many {
				want := time.Duration(5+min(i, 4)) * time.Minute
				if d.Outcome != throttle.Deferred || d.RetryAfter > want || d.RetryAfter < want-20*time.Second || d.Spent() != (i < 4) {
					t.Errorf("%d: %+v; want it %v from now", i, d, want)
				}
			}
			for _, d := range many {
				if err := limiter.Refund(t.Context(), d); err != nil {
					t.Error(err)
				}
			}
			if d := ask(t, limiter, "allow", 1, requests[0].Subjects...); d.RetryAfter > 8*time.Minute {
				t.Errorf("afterwards %+v; the newest was given back", d) // a leak gives back no more than that
			}
		})
	}
}

// With a slack, windows and spacings are wider by it, and rules that count by periods give no slot at the end of one. Their periods have to be
// long enough for that.
func TestSlack(t *testing.T) {
	t.Parallel()
	for name, store := range stores(t) {
		t.Run(name, func(t *testing.T) {
			limiter := throttle.New(store)
			subject := throttle.Subject{Key: "slack", Slack: 5 * time.Second, Rules: []throttle.Rule{
				throttle.Leak(1, time.Second), throttle.TokenBucket(1, time.Minute, 2), throttle.Window(2, time.Minute), throttle.Spacing(20 * time.Second),
			}}
			for i, want := range []time.Duration{0, 25 * time.Second, 65 * time.Second} {
				d := ask(t, limiter, "reserve", 1, subject)
				if d.RetryAfter > want || d.RetryAfter < want-20*time.Second || i == 2 && d.Rule != "window 2/1m" {
					t.Errorf("%d: %+v; want it %v from now", i, d, want)
				}
			}
			for _, by := range []throttle.Rule{throttle.FixedWindow(100, time.Second), throttle.SlidingCounter(100, 4*time.Second, 4), throttle.FixedWindow(1000, time.Second).OrDrop()} {
				const slack = 200 * time.Millisecond
				subject := throttle.Subject{Key: "slack of a " + string(by.Kind()), Slack: slack, Rules: []throttle.Rule{by, throttle.Spacing(70 * time.Millisecond)}}
				for range 20 {
					d := ask(t, limiter, "reserve", 1, subject)
					if into := time.Duration(d.Slot.UnixNano()) % time.Second; into >= time.Second-slack {
						t.Errorf("%v: a slot %v behind the beginning of a second", by, into)
					}
				}
			}
			for _, wrong := range []throttle.Subject{
				{Key: "k", Slack: time.Second, Rules: []throttle.Rule{throttle.FixedWindow(1, 4*time.Second)}},
				{Key: "k", Slack: time.Second, Rules: []throttle.Rule{throttle.SlidingCounter(1, 12*time.Second, 3)}},
				{Key: "k", Slack: time.Second, Rules: []throttle.Rule{throttle.FixedWindow(1, time.Minute).OrDrop().CountingDropped()}},
				{Key: "k", Slack: -1}, {Key: "k", Slack: time.Hour},
			} {
				if _, err := limiter.Allow(t.Context(), 1, wrong); !errors.Is(err, throttle.ErrInvalidRule) {
					t.Errorf("%+v: %v", wrong, err)
				}
			}
		})
	}
}
