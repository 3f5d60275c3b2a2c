package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/throttle"
)

// A hook sees every command before it is sent.
type hook func(redis.Cmder) error

func (h hook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := h(cmd); err != nil {
			return err
		}
		return next(ctx, cmd)
	}
}
func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A refund that failed can be made again, and is made once.
func TestRefundAgain(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		limiter := throttle.New(throttle.NewRedisStore(client, "rl"))
		subject := throttle.Subject{Key: "u", Rules: []throttle.Rule{throttle.Window(2, time.Hour)}}
		d := ask(t, limiter, "allow", 1, subject)
		broken := errors.New("broken")
		fail := true
		client.AddHook(hook(func(redis.Cmder) error {
			if fail {
				return broken
			}
			return nil
		}))
		if err := limiter.Refund(t.Context(), d); !errors.Is(err, broken) {
			t.Fatalf("%v, want it to fail", err)
		}
		fail = false
		for range 2 {
			if err := limiter.Refund(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			if d := ask(t, limiter, "peek", 1, subject); d.Remaining != 2 {
				t.Errorf("after another try: %+v", d)
			}
		}
	})
}

// A panic in a hook of the client, which net/http would recover from, leaves nobody
// waiting.
func TestPanickingHook(t *testing.T) {
	t.Parallel()
	client := redistest.ExactMini(t)
	limiter := throttle.New(throttle.NewRedisStore(client, "rl"))
	subject := throttle.Subject{Key: "u", Rules: []throttle.Rule{throttle.Window(100, time.Hour)}}
	panics := true
	client.AddHook(hook(func(redis.Cmder) error {
		if panics {
			panic("a hook")
		}
		return nil
	}))
	for range 5 {
		func() {
			defer func() { _ = recover() }()
			_, _ = limiter.Allow(t.Context(), 1, subject)
		}()
	}
	panics = false
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if d, err := limiter.Allow(ctx, 1, subject); err != nil || d.Outcome != throttle.Admitted {
		t.Errorf("%+v, %v", d, err)
	}
}

// A large cost is one entry of a log, also of one that is long already.
func TestLargeCosts(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		limiter := throttle.New(throttle.NewRedisStore(client, "rl"))
		large := throttle.Subject{Key: "large", Rules: []throttle.Rule{throttle.Window(1_000_000, time.Hour)}}
		d := ask(t, limiter, "allow", 999_999, large)
		if d.Outcome != throttle.Admitted || d.Remaining != 1 {
			t.Errorf("%+v", d)
		}
		if size := client.StrLen(t.Context(), "rl{large}").Val(); size > 100 {
			t.Errorf("%d bytes for one slot", size)
		}
		long := throttle.Subject{Key: "long", Rules: []throttle.Rule{throttle.Window(1000, time.Hour)}}
		for range 3 {
			requests := slices.Repeat([]throttle.Request{{Subjects: []throttle.Subject{long}}}, 100)
			if _, err := limiter.AllowMany(t.Context(), requests...); err != nil {
				t.Fatal(err)
			}
		}
		if d = ask(t, limiter, "allow", 690, long); d.Outcome != throttle.Admitted || d.Remaining != 10 {
			t.Errorf("%+v", d)
		}
		if n := client.LLen(t.Context(), "rl{long}%").Val(); n != 301 {
			t.Errorf("%d entries for 301 actions", n)
		}
		if over := ask(t, limiter, "allow", 11, long); over.Outcome != throttle.Deferred {
			t.Errorf("%+v", over)
		}
		if err := limiter.Refund(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if d := ask(t, limiter, "peek", 1, long); d.Remaining != 700 {
			t.Errorf("after a refund: %+v", d)
		}
	})
}

// Whatever a script touches it declares: on a cluster whose slots move, what it does not
// declare is taken for empty.
func TestKeysAreDeclared(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	declared := map[string]bool{}
	client.AddHook(hook(func(cmd redis.Cmder) error {
		if args := cmd.Args(); strings.HasPrefix(fmt.Sprint(args[0]), "eval") {
			n, _ := strconv.Atoi(fmt.Sprint(args[2]))
			for _, key := range args[3 : 3+n] {
				declared[fmt.Sprint(key)] = true
			}
		}
		return nil
	}))
	limiter := throttle.New(throttle.NewRedisStore(client, "rl"))
	rules := []throttle.Rule{
		throttle.Window(1000, time.Hour), throttle.Window(500, time.Hour).AsShadow(), throttle.Window(130, time.Hour).CountingDropped(),
	}
	for _, key := range []string{"u", "}x", "{a}b"} {
		for range 2 {
			requests := slices.Repeat([]throttle.Request{{Subjects: []throttle.Subject{{Key: key, Rules: rules}, {Key: key + "2", Rules: rules[:1]}}}}, 140)
			if _, err := limiter.AllowMany(t.Context(), requests...); err != nil {
				t.Fatal(err)
			}
		}
	}
	keys := client.Keys(t.Context(), "*").Val()
	if lists := len(keys) - 6; lists != 3*4 {
		t.Errorf("%d long logs, want 12: %q", lists, keys)
	}
	for _, key := range keys {
		if !declared[key] {
			t.Errorf("%q was never declared", key)
		}
	}
}

// A subject that begins with a brace lies in one slot of a cluster, however long its log.
func TestBracesOnACluster(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	client := redistest.StartCluster(t, 3)
	limiter := throttle.New(throttle.NewRedisStore(client, "rl"))
	for _, key := range []string{"plain", "}x", "{", "}", "{}", "a}b{", "}{"} {
		for i := range 150 {
			subject := throttle.Subject{Key: key, Rules: []throttle.Rule{throttle.Window(1000, time.Hour)}}
			if d := ask(t, limiter, "allow", 1, subject); d.Remaining != 999-i {
				t.Fatalf("%q: decision %d: %+v", key, i, d)
			}
		}
	}
}

// What an older release wrote is read as far as it says the same: a log does, and other
// rules begin anew.
func TestOlderStates(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		limiter := throttle.New(throttle.NewRedisStore(client, "rl"))
		now := client.Time(t.Context()).Val().UnixMicro()
		old := fmt.Sprintf("%016d%016d;leak1 %d 0 1;%%counting %016d", now, now-1, now, now)
		client.Set(t.Context(), "rl{u}", old, time.Hour)
		subject := throttle.Subject{Key: "u", Rules: []throttle.Rule{throttle.Window(3, time.Hour), throttle.Leak(1, time.Hour)}}
		if d := ask(t, limiter, "allow", 1, subject); d.Outcome != throttle.Admitted {
			t.Errorf("%+v, want the third of a window of 3", d)
		}
		if d := ask(t, limiter, "peek", 1, subject); d.RetryAfter < 59*time.Minute {
			t.Errorf("%+v", d)
		}
		client.Set(t.Context(), "rl{v}", old, time.Hour)
		counting := throttle.Subject{Key: "v", Rules: []throttle.Rule{throttle.Window(1, time.Hour).CountingDropped()}}
		if d := ask(t, limiter, "allow", 1, counting); d.Outcome != throttle.Deferred {
			t.Errorf("%+v, want it deferred", d)
		}
	})
}

// Rules that only queues and the store in memory know are refused, with what would be right; those beside them are decided.
func TestRulesThatRedisDoesNotKnow(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		limiter := throttle.New(throttle.NewRedisStore(client, "rl"))
		rule := throttle.Hours("08:00-21:00", "", "UTC")
		_, err := limiter.Allow(t.Context(), 1, throttle.Subject{Key: "u", Rules: []throttle.Rule{rule}})
		if want := "hours are decided by a queue"; !errors.Is(err, throttle.ErrInvalidRule) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), rule.String()) {
			t.Errorf("%v, want %s", err, want)
		}
		if d, err := limiter.Allow(t.Context(), 1, throttle.Subject{Key: "u", Rules: []throttle.Rule{throttle.Leak(50, time.Second)}}); err != nil || d.Outcome != throttle.Admitted {
			t.Errorf("%+v, %v", d, err)
		}
	})
}
