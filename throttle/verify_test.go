package throttle

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// An hour of random traffic that the limiter let through keeps every rule.
func TestVerifyWhatWasAdmitted(t *testing.T) {
	t.Parallel()
	rules := []Rule{
		Leak(7, time.Second), TokenBucket(3, time.Second, 10), Window(10, 3*time.Second), Spacing(40 * time.Millisecond),
		FixedWindow(9, 2*time.Second), SlidingCounter(8, 2*time.Second, 2), SlidingCounter(8, 2*time.Second, 7),
	}
	for _, rule := range rules {
		contestant := memoryContestant()
		limiter := New(contestant.store)
		random := rand.New(rand.NewPCG(1, 2))
		now := int64(1_763_600_000_000_001)
		var log []Event
		for now < 1_763_600_000_000_001+200e6 {
			now += random.Int64N(100_000) - 2_000 // and sometimes back
			contestant.set(now)
			cost := 1 + random.IntN(3)
			verb := limiter.Allow
			if random.IntN(20) == 0 {
				verb = limiter.Reserve
			}
			d, err := verb(t.Context(), cost, Subject{Key: "u", Rules: []Rule{rule}})
			if err != nil {
				t.Fatal(err)
			}
			if d.spent != nil {
				log = append(log, Event{Subject: "u", At: d.Slot, Cost: cost})
			}
		}
		if found := Verify(log, []Rule{rule}); len(found) > 0 || len(log) < 100 {
			t.Errorf("%s: %d starts, %d violations: %v", rule, len(log), len(found), found[:min(len(found), 3)])
		}
		// One more start beside each tenth breaks the rule there.
		for i := 50; i < len(log); i += len(log) / 10 {
			broken := append([]Event{{Subject: "u", At: log[i].At, Cost: 12}}, log...)
			if found := Verify(broken, []Rule{rule}); len(found) == 0 {
				t.Errorf("%s: 12 more at %v went unnoticed", rule, log[i].At)
			}
		}
	}
}

func TestVerifyBrokenLogs(t *testing.T) {
	t.Parallel()
	const sec, ms, us = time.Second, time.Millisecond, time.Microsecond
	tests := map[string]struct {
		rule   Rule
		at     []time.Duration
		broken []int // which of them
		detail string
	}{
		"leak, kept":                  {Leak(2, sec), []time.Duration{0, 500 * ms, sec, 3 * sec}, nil, ""},
		"leak, in pairs":              {Leak(2, sec), []time.Duration{0, 0, sec}, []int{1}, "500ms before its turn"},
		"leak, a little too fast":     {Leak(2, sec), []time.Duration{0, 499 * ms, sec}, []int{1}, "1ms before its turn"},
		"leak, saved up":              {Leak(2, sec), []time.Duration{0, 5 * sec, 5 * sec}, []int{2}, "500ms before its turn"},
		"leak, thirds":                {Leak(3, sec), []time.Duration{0, 333334 * us, 666667 * us, sec}, nil, ""},
		"token bucket, kept":          {TokenBucket(1, sec, 2), []time.Duration{0, 0, sec, 5 * sec, 5 * sec}, nil, ""},
		"token bucket, empty":         {TokenBucket(1, sec, 2), []time.Duration{0, 0, 900 * ms, sec}, []int{2}, "100ms before its tokens"},
		"token bucket, never as full": {TokenBucket(1, sec, 2), []time.Duration{0, 9 * sec, 9 * sec, 9 * sec}, []int{3}, "1s before its tokens"},
		"window, kept":                {Window(2, sec), []time.Duration{0, 0, sec, sec}, nil, ""},
		"window, a microsecond":       {Window(2, sec), []time.Duration{0, 0, sec - us}, []int{2}, "3 within 999.999ms"},
		"spacing, kept":               {Spacing(sec), []time.Duration{0, sec, 2 * sec}, nil, ""},
		"spacing, a microsecond":      {Spacing(sec), []time.Duration{0, sec, 2*sec - us}, []int{2}, "999.999ms after the one before"},
		"fixed window, across edges":  {FixedWindow(2, sec), []time.Duration{900 * ms, 900 * ms, sec, sec}, nil, ""},
		"fixed window, within one":    {FixedWindow(2, sec), []time.Duration{0, 500 * ms, 999 * ms}, []int{2}, "3 in the period that began at"},
		"sliding counter, kept":       {SlidingCounter(2, sec, 2), []time.Duration{0, 0, 1500 * ms, 2500 * ms}, nil, ""},
		"sliding counter, too early":  {SlidingCounter(2, sec, 2), []time.Duration{0, 0, 1400 * ms}, []int{2}, "an estimate of 2.20"},
		"ring, kept":                  {SlidingCounter(2, sec, 4), []time.Duration{0, 0, sec, sec}, nil, ""},
		"ring, too early":             {SlidingCounter(2, sec, 4), []time.Duration{0, 0, 999 * ms}, []int{2}, "an estimate of 3.00"},
		"a shadow promises nothing":   {Spacing(sec).AsShadow(), []time.Duration{0, 0}, nil, ""},
	}
	begin := time.Unix(1_763_600_000, 0)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var log []Event
			for _, at := range test.at {
				// Newest first: the log needs no order. And another subject's do not count.
				log = append([]Event{{Subject: "u", At: begin.Add(at)}, {Subject: at.String(), At: begin.Add(at)}}, log...)
			}
			var found []Violation
			for _, v := range Verify(log, []Rule{test.rule}) {
				if v.Subject == "u" {
					found = append(found, v)
				}
			}
			if len(found) != len(test.broken) {
				t.Fatalf("found %v, want %d", found, len(test.broken))
			}
			for i, v := range found {
				if at := begin.Add(test.at[test.broken[i]]); !v.At.Equal(at) || !strings.HasPrefix(v.Detail, test.detail) {
					t.Errorf("found %v, want %q at %v", v, test.detail, at)
				}
			}
		})
	}
}
