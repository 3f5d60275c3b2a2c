package throttle_test

import (
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/throttle"
)

// stores are the two, in a bubble.
func stores(t *testing.T) map[string]throttle.Store {
	return map[string]throttle.Store{
		"memory": throttle.NewMemoryStore(),
		"redis":  throttle.NewRedisStore(redistest.ExactMini(t), "rl"),
	}
}

// A shadow rule says what it would have done, in a world where it had: of 4 a second, 2
// would have been let through.
func TestShadow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, store := range stores(t) {
			limiter := throttle.New(store)
			shadow := throttle.Subject{Key: "u", Rules: []throttle.Rule{
				throttle.Window(2, sec).AsShadow().OrDrop(), throttle.Window(3, time.Hour), throttle.Leak(4, sec).AsShadow(),
			}}
			objections := 0
			for i := range 3 {
				d := ask(t, limiter, "allow", 1, shadow)
				if d.Outcome != throttle.Admitted || d.Rule != "window 3/1h" || d.Remaining != 2-i {
					t.Errorf("%s: %+v, want it admitted by the rule that is in force", name, d)
				}
				if d.Shadow != "" {
					objections++
				}
				time.Sleep(250 * ms)
			}
			if objections != 1 {
				t.Errorf("%s: %d objections in 3 starts, want 1", name, objections)
			}
			if d := ask(t, limiter, "allow", 9, throttle.Subject{Key: "v", Rules: shadow.Rules[:1]}); d.Outcome != throttle.Admitted || d.Shadow != "window 2/1s" {
				t.Errorf("%s: %+v, want an objection to a cost above the limit", name, d)
			}
		}
	})
}

// A rule that counts what was refused does so for itself: the spacing beside it does not.
func TestCountingDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, store := range stores(t) {
			limiter := throttle.New(store)
			flood := throttle.Subject{Key: "u", Rules: []throttle.Rule{
				throttle.Window(3, 10*sec).CountingDropped(), throttle.Spacing(300 * ms),
			}}
			for i := range 40 { // a try each 250 ms
				d := ask(t, limiter, "allow", 1, flood)
				if want := i == 0 || i == 2; (d.Outcome == throttle.Admitted) != want {
					t.Errorf("%s: try %d: %+v, want admitted %v", name, i, d, want)
				}
				ask(t, limiter, "peek", 1, flood) // asking is no try
				time.Sleep(250 * ms)
			}
			time.Sleep(10 * sec)
			if d := ask(t, limiter, "allow", 3, flood); d.Outcome != throttle.Admitted {
				t.Errorf("%s: after the flood: %+v", name, d)
			}
		}
	})
}

// However long the flood, the log keeps no more than its rules look at, and one.
func TestLogsStayShort(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		limiter := throttle.New(throttle.NewRedisStore(client, "rl"))
		subject := throttle.Subject{Key: "u", Rules: []throttle.Rule{
			throttle.Window(5, time.Hour).CountingDropped(), throttle.Window(7, time.Hour),
		}}
		var flood []throttle.Request
		for range 40 {
			flood = append(flood, throttle.Request{Subjects: []throttle.Subject{subject}})
		}
		if _, err := limiter.AllowMany(t.Context(), flood...); err != nil {
			t.Fatal(err)
		}
		own, counting, _ := strings.Cut(client.Get(t.Context(), "rl{u}").Val(), ";%counting ")
		_, own, _ = strings.Cut(own, "@")
		_, counting, _ = strings.Cut(counting, "@")
		if len(own) != 5*16 || len(counting) != 6*16 {
			t.Errorf("logs %q and %q, want 5 and 6 slots of 16 digits", own, counting)
		}
	})
}

func TestBadBatch(t *testing.T) {
	t.Parallel()
	limiter := throttle.New(throttle.NewMemoryStore())
	good := throttle.Request{Subjects: []throttle.Subject{{Key: "u", Rules: []throttle.Rule{throttle.Window(2, sec)}}}}
	bad := good
	bad.Cost = 3
	decisions, err := limiter.AllowMany(t.Context(), good, bad)
	if err == nil || !strings.HasPrefix(err.Error(), "request 1: ") || decisions != nil {
		t.Errorf("%v, %v", decisions, err)
	}
	if d := ask(t, limiter, "peek", 1, good.Subjects...); d.Remaining != 2 {
		t.Errorf("an invalid batch has spent: %+v", d)
	}
	twice := []throttle.Subject{good.Subjects[0], good.Subjects[0]}
	if _, err := limiter.Allow(t.Context(), 1, twice...); err == nil || !strings.Contains(err.Error(), "appears twice") {
		t.Errorf("the same subject twice: %v", err)
	}
}

// The keys of subjects never meet, however they are named.
func TestKeysNeverMeet(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		limiter := throttle.New(throttle.NewRedisStore(client, "rl"))
		names := []string{
			"u", "{u}", "u%shadow", "{u}%shadow", "%", "%25", "u%counting", "log:u", "state:u", "u}", "u%7D", "{u", "{}u", "}x", "%7Dx", "{}", "a:b", "a_b", "\x00", "é",
		}
		rules := []throttle.Rule{
			throttle.Window(1, time.Hour), throttle.Leak(1, time.Hour),
			throttle.Window(1, time.Hour).AsShadow(), throttle.Window(1, time.Hour).CountingDropped(),
		}
		for _, name := range names {
			if d := ask(t, limiter, "allow", 1, throttle.Subject{Key: name, Rules: rules}); d.Outcome != throttle.Admitted || d.Shadow != "" {
				t.Errorf("%q met another: %+v", name, d)
			}
		}
		if err := limiter.Reset(t.Context(), names...); err != nil {
			t.Fatal(err)
		}
		if left := client.Keys(t.Context(), "*").Val(); len(left) > 0 {
			t.Errorf("a reset left %q", left)
		}
	})
}

// What the headers of the scripts say about KEYS and ARGV is what they use.
func TestScriptHeaders(t *testing.T) {
	t.Parallel()
	names, err := os.ReadDir("lua")
	if err != nil {
		t.Fatal(err)
	}
	word := regexp.MustCompile(`(KEYS|ARGV)(\[(\d+)\])?`)
	for _, name := range names {
		source, err := os.ReadFile("lua/" + name.Name())
		if err != nil {
			t.Fatal(err)
		}
		said, used := []string{}, []string{}
		inHeader := true
		for line := range strings.Lines(string(source)) {
			comment := strings.HasPrefix(line, "--")
			inHeader = inHeader && comment
			for _, match := range word.FindAllStringSubmatch(line, -1) {
				if inHeader {
					said = append(said, match[1]+match[3])
				} else if !comment {
					used = append(used, match[1]+match[3])
				}
			}
		}
		for _, list := range []*[]string{&said, &used} {
			slices.Sort(*list)
			*list = slices.Compact(*list)
		}
		for _, use := range used {
			if !slices.Contains(said, use) && !slices.Contains(said, use[:4]) {
				t.Errorf("%s uses %s and does not say so", name.Name(), use)
			}
		}
		for _, say := range said {
			if !slices.ContainsFunc(used, func(use string) bool { return use == say || use == say[:4] }) {
				t.Errorf("%s says %s and does not use it", name.Name(), say)
			}
		}
	}
}

// A decision says when there will be more than remains: not a moment sooner, and not later.
func TestNextAfter(t *testing.T) {
	t.Parallel()
	for name, rule := range map[string]throttle.Rule{
		"window": throttle.Window(3, 10*sec), "bucket": throttle.TokenBucket(3, 10*sec, 5), "leak": throttle.Leak(3, 10*sec),
		"spacing": throttle.Spacing(3 * sec), "fixed window": throttle.FixedWindow(4, 10*sec), "counter": throttle.SlidingCounter(4, 10*sec, 5),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for where, store := range stores(t) {
					limiter := throttle.New(store)
					subject := throttle.Subject{Key: "u", Rules: []throttle.Rule{rule}}
					if d := ask(t, limiter, "peek", 1, subject); d.NextAfter != 0 {
						t.Errorf("%s: untouched: more after %v", where, d.NextAfter)
					}
					for range 3 {
						ask(t, limiter, "allow", 1, subject)
						time.Sleep(700 * ms)
					}
					d := ask(t, limiter, "peek", 1, subject)
					time.Sleep(d.NextAfter - us)
					if early := ask(t, limiter, "peek", 1, subject); d.NextAfter <= 0 || early.Remaining != d.Remaining || early.NextAfter != us {
						t.Errorf("%s: %d remain, more after %v; a moment before that %+v", where, d.Remaining, d.NextAfter, early)
					}
					time.Sleep(us)
					if later := ask(t, limiter, "peek", 1, subject); later.Remaining <= d.Remaining {
						t.Errorf("%s: %d remained, and %d after %v", where, d.Remaining, later.Remaining, d.NextAfter)
					}
				}
			})
		})
	}
}

// An action costs each subject what that counts. A refund gives each back as much.
func TestCostsOfSubjects(t *testing.T) {
	t.Parallel()
	real := map[string]throttle.Store{"a real Redis": throttle.NewRedisStore(redistest.Start(t).Client(t), "rl")}
	maps.Copy(real, stores(t))
	for name, store := range real {
		limiter := throttle.New(store)
		subjects := []throttle.Subject{
			{Key: "requests", Rules: []throttle.Rule{throttle.Window(2, time.Hour), throttle.FixedWindow(2, 1000*time.Hour)}},
			{Key: "tokens", Rules: []throttle.Rule{throttle.Window(10, time.Hour), throttle.TokenBucket(1, time.Hour, 10)}, Cost: 7},
		}
		left := func(i int) int { return ask(t, limiter, "peek", 1, subjects[i]).Remaining }
		d := ask(t, limiter, "allow", 1, subjects...)
		tokens := subjects[1]
		tokens.Cost = 1
		if d.Outcome != throttle.Admitted || left(0) != 1 || ask(t, limiter, "peek", 1, tokens).Remaining != 3 {
			t.Errorf("%s: %+v, and %d requests are left", name, d, left(0))
		}
		if again := ask(t, limiter, "allow", 1, subjects...); again.Outcome != throttle.Deferred || again.Subject != "tokens" || left(0) != 1 {
			t.Errorf("%s: %+v, and %d requests are left", name, again, left(0))
		}
		if err := limiter.Refund(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		tokens.Cost = 10
		if d := ask(t, limiter, "peek", 1, tokens); left(0) != 2 || d.Outcome != throttle.Admitted {
			t.Errorf("%s: after the refund %+v, and %d requests are left", name, d, left(0))
		}
		tokens.Cost = 11
		if _, err := limiter.Allow(t.Context(), 1, subjects[0], tokens); !errors.Is(err, throttle.ErrImpossibleCost) {
			t.Errorf("%s: 11 of 10 tokens: %v", name, err)
		}
	}
}

// What a subject costs counts in each answer: whether a rule drops the action, or would have, how much is left, and what a
// refusal has used up. Here the first of the subjects costs less than the one that decides.
func TestCostsOfSubjectsInEachAnswer(t *testing.T) {
	t.Parallel()
	real := map[string]throttle.Store{"a real Redis": throttle.NewRedisStore(redistest.Start(t).Client(t), "rl")}
	maps.Copy(real, stores(t))
	for name, store := range real {
		limiter := throttle.New(store)
		twice := func(key string, rules ...throttle.Rule) throttle.Decision {
			t.Helper()
			request := throttle.Subject{Key: "requests of " + key, Rules: []throttle.Rule{throttle.Window(100, time.Hour)}}
			tokens := throttle.Subject{Key: key, Rules: rules, Cost: 7}
			ask(t, limiter, "allow", 1, request, tokens)
			return ask(t, limiter, "allow", 1, request, tokens)
		}
		if d := twice("dropped", throttle.Window(10, time.Hour).OrDrop()); d.Outcome != throttle.Dropped || d.Subject != "dropped" || d.Remaining != 3 {
			t.Errorf("%s: 14 of 10 tokens: %+v, want it dropped, and 3 left", name, d)
		}
		if d := twice("deferred", throttle.Window(10, time.Hour)); d.Outcome != throttle.Deferred || d.Subject != "deferred" || d.Remaining != 3 {
			t.Errorf("%s: 14 of 10 tokens: %+v, want it deferred, and 3 left", name, d)
		}
		if d := twice("shadow", throttle.Window(10, time.Hour).AsShadow()); d.Outcome != throttle.Admitted || d.Shadow != "window 10/1h" {
			t.Errorf("%s: 14 of 10 tokens: %+v, want the shadow rule to object", name, d)
		}
		counted := throttle.Window(20, time.Hour).CountingDropped()
		twice("counted", counted, throttle.Leak(7, time.Hour)) // the second is refused
		if d := ask(t, limiter, "peek", 1, throttle.Subject{Key: "counted", Rules: []throttle.Rule{counted}}); d.Remaining != 6 {
			t.Errorf("%s: two actions of 7 of 20 tokens, one of them refused, leave %d, want 6", name, d.Remaining)
		}
	}
}
