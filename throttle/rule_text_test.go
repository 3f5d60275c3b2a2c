package throttle_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/throttle"
)

func TestRuleText(t *testing.T) {
	t.Parallel()
	tests := map[string]throttle.Rule{
		"leak 50/s":                                        throttle.Leak(50, sec),
		"leak 50/s ramp 1m over=drop":                      throttle.Leak(50, sec).Ramping(time.Minute).OrDrop(),
		"token_bucket 10/1m burst 20":                      throttle.TokenBucket(10, time.Minute, 20),
		"window 50/24h over=drop":                          throttle.Window(50, 24*time.Hour).OrDrop(),
		"spacing 3s":                                       throttle.Spacing(3 * sec),
		"fixed_window 100/1h shadow":                       throttle.FixedWindow(100, time.Hour).AsShadow(),
		"sliding_counter 1000/1h buckets 12":               throttle.SlidingCounter(1000, time.Hour, 12),
		"warmup 2026-12-01 1:50/24h,2:100/24h,7:1000/24h":  throttle.Warmup("2026-12-01", "1:50/24h, 2:100/24h0m0s, 7:1000/24h", ""),
		"warmup 2026-12-01 1:5/day Europe/Paris over=drop": throttle.Warmup("2026-12-01", "1:5/day", "Europe/Paris").OrDrop(),
		"window 10/1m over=drop count_dropped":             throttle.Window(10, time.Minute).OrDrop().CountingDropped(),
	}
	for text, want := range tests {
		got, err := throttle.ParseRule(text)
		if err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
		written, err := json.Marshal([]throttle.Rule{want})
		if err != nil || string(written) != `["`+text+`"]` {
			t.Errorf("%s in JSON: %s, %v", text, written, err)
		}
		var read []throttle.Rule
		if err := json.Unmarshal(written, &read); err != nil || len(read) != 1 || read[0] != want {
			t.Errorf("%s from JSON: %v, %v", written, read, err)
		}
		if plain, err := throttle.ParseRule(want.String()); err != nil || plain.String() != want.String() || plain.Drops() || plain.Shadows() {
			t.Errorf("%s: %v, %v", want, plain, err)
		}
	}
	for _, text := range []string{"  window   10/m  over=defer ", "sliding_counter 10/1m"} {
		if _, err := throttle.ParseRule(text); err != nil {
			t.Error(err)
		}
	}
}

func TestBadRuleText(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"":                                       "want a kind and its rate such as window 10/1m",
		"window":                                 "want a kind and its rate",
		"bucket 10/1m":                           `unknown kind "bucket": want leak, `,
		"window ten/1m":                          `window "ten/1m": want COUNT/PERIOD such as 50/s or 10/1m`,
		"window 0/1m":                            "0 must be from 1 to 1000000",
		"window 10/1m burst 3":                   `"burst": want over=drop, shadow or count_dropped`,
		"token_bucket 10/1m":                     "burst 0 must be from 1",
		"token_bucket 10/1m burst":               `"burst": want over=drop`,
		"token_bucket 1/1m burst ab":             `"ab": want a whole number`,
		"spacing 3":                              "want a duration such as 3s",
		"warmup 2026-12-01":                      "no windows; want some with the days from which they hold",
		"warmup tomorrow 1:50/24h":               `from "tomorrow": want a date such as 2026-12-01`,
		"warmup 2026-12-01 50/24h":               `"50/24h": want a day and its window, such as 2:100/24h`,
		"warmup 2026-12-01 1:50/24h user":        "a warm-up has the same days for all; want a zone such as Europe/Paris, or none for UTC",
		"warmup 2026-12-01 1:50/24h Europe/Pari": "did you mean Europe/Paris?",
		"window 10/1m over=reject":               `"over=reject": want over=drop`,
	}
	for text, want := range tests {
		rule := throttle.Leak(1, sec)
		err := rule.UnmarshalText([]byte(text))
		if !errors.Is(err, throttle.ErrInvalidRule) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
		if rule != throttle.Leak(1, sec) {
			t.Errorf("%q changed the rule to %v", text, rule)
		}
	}
	if text, err := json.Marshal(throttle.Rule{}); err == nil {
		t.Errorf("the zero rule is %s", text)
	}
}

func TestRuleAccessors(t *testing.T) {
	t.Parallel()
	bucket, counter := throttle.TokenBucket(10, time.Minute, 20), throttle.SlidingCounter(7, sec, 3)
	if bucket.Kind() != throttle.KindTokenBucket || bucket.Limit() != 10 || bucket.Period() != time.Minute || bucket.Burst() != 20 || bucket.Buckets() != 0 {
		t.Errorf("%v", bucket)
	}
	if counter.Kind() != throttle.KindSlidingCounter || counter.Buckets() != 3 || counter.Burst() != 0 {
		t.Errorf("%v", counter)
	}
	if spacing := throttle.Spacing(3 * sec); spacing.Limit() != 1 || spacing.Period() != 3*sec || (throttle.Rule{}).Kind() != "" {
		t.Errorf("%v", spacing)
	}
}

// Whatever the text, a rule that is read is valid and survives being written.
func FuzzRuleText(f *testing.F) {
	f.Add("token_bucket 10/1m burst 20 over=drop shadow count_dropped")
	f.Add("sliding_counter 1000/1h buckets 2")
	f.Add("warmup 2026-12-01 1:50/24h,2:100/24h,7:1000/24h Europe/Paris over=drop")
	f.Add("warmup 2026-12-01 1:5/week")
	f.Fuzz(func(t *testing.T, text string) {
		rule, err := throttle.ParseRule(text)
		if err != nil {
			return
		}
		written, err := rule.MarshalText()
		if err != nil {
			t.Fatalf("%q became an invalid rule: %v", text, err)
		}
		if again, err := throttle.ParseRule(string(written)); err != nil || again != rule {
			t.Fatalf("%q: %s became %v, %v", text, written, again, err)
		}
	})
}
