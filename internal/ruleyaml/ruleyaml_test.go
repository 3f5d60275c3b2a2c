package ruleyaml_test

import (
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/waterclock/waterclock/internal/ruleyaml"
	"github.com/waterclock/waterclock/throttle"
)

const (
	ms  = time.Millisecond
	sec = time.Second
)

// written is a rule in YAML.
type written struct{ throttle.Rule }

func (w *written) UnmarshalYAML(node *yaml.Node) (err error) {
	read, err := ruleyaml.Read(node)
	if err == nil {
		w.Rule = read
	}
	return err
}

func (w written) MarshalYAML() (any, error) { return ruleyaml.Write(w.Rule) }

func TestRuleFromYAML(t *testing.T) {
	tests := map[string]throttle.Rule{
		"{leak: 50/s}":                            throttle.Leak(50, sec),
		"{leak: 50/s, ramp: 1m}":                  throttle.Leak(50, sec).Ramping(60 * sec),
		"{leak: 50/1s}":                           throttle.Leak(50, sec),
		"{leak: 7/250ms}":                         throttle.Leak(7, 250*ms),
		"{token_bucket: 10/1m, burst: 20}":        throttle.TokenBucket(10, time.Minute, 20),
		"{window: 10/m}":                          throttle.Window(10, time.Minute),
		"{window: 50/24h, over: drop}":            throttle.Window(50, 24*time.Hour).OrDrop(),
		"{spacing: 3s, over: defer}":              throttle.Spacing(3 * sec),
		"{over: drop, spacing: 1m30s}":            throttle.Spacing(90 * sec).OrDrop(),
		"{fixed_window: 100/1h, shadow: true}":    throttle.FixedWindow(100, time.Hour).AsShadow(),
		"{sliding_counter: 1000/1h}":              throttle.SlidingCounter(1000, time.Hour, 2),
		"{sliding_counter: 1000/1h, buckets: 3}":  throttle.SlidingCounter(1000, time.Hour, 3),
		"{window: 5/1s, count_dropped: true}":     throttle.Window(5, sec).CountingDropped(),
		"{window: 5/1s, shadow: false}":           throttle.Window(5, sec),
		"window: 10/1m\nover: drop\nshadow: true": throttle.Window(10, time.Minute).OrDrop().AsShadow(),
		"{warmup: {from: 2026-12-01, days: {1: 50/24h, 2: 100/24h, 7: 1000/24h}}}":                   throttle.Warmup("2026-12-01", "1:50/24h,2:100/24h,7:1000/24h", ""),
		"{warmup: {days: {1: 5/day, 02: 10/day}, from: 2026-12-01}, zone: Europe/Paris, over: drop}": throttle.Warmup("2026-12-01", "1:5/day,2:10/day", "Europe/Paris").OrDrop(),
		"shadow: true\nwarmup:\n  from: 2026-12-01\n  days:\n    1: 50/h\n    30: 9/1s":              throttle.Warmup("2026-12-01", "1:50/1h,30:9/1s", "").AsShadow(),
		`{"warmup": {"from": "2026-12-01", "days": {"1": "50/24h"}}, "count_dropped": true}`:         throttle.Warmup("2026-12-01", "1:50/24h", "").CountingDropped(),
		"{\"window\": \"10/1m\", \"over\": \"drop\"}":                                                throttle.Window(10, time.Minute).OrDrop(),
	}
	for text, want := range tests {
		var got written
		if err := yaml.Unmarshal([]byte(text), &got); err != nil || got.Rule != want {
			t.Errorf("%s:\n got %+v, %v\nwant %+v", text, got, err, want)
		}
		text, err := yaml.Marshal(written{want})
		if err != nil {
			t.Fatal(err)
		}
		var again written
		if err := yaml.Unmarshal(text, &again); err != nil || again.Rule != want {
			t.Errorf("%s, written and read again: %+v, %v", text, again, err)
		}
	}
}

func TestBadRuleFromYAML(t *testing.T) {
	tests := map[string]string{
		"{leak: fifty/s}":                       `line 3: leak "fifty/s": want COUNT/PERIOD such as 50/s or 10/1m`,
		"{leak: 50}":                            `line 3: leak "50": want COUNT/PERIOD`,
		"{leak: 50/}":                           `line 3: leak "50/": want COUNT/PERIOD`,
		"{leak: 50/day}":                        `line 3: leak "50/day": want COUNT/PERIOD such as 50/s or 10/1m (a day is 24h)`,
		"{leak: 50/1}":                          `line 3: leak "50/1": want COUNT/PERIOD`,
		"{leak: [50, s]}":                       `line 3: leak: want a single value`,
		"{leak: }":                              `line 3: leak "": want COUNT/PERIOD`,
		"{leak: 0/s}":                           `line 3: leak 0/s: 0 must be from 1 to 1000000`,
		"{leak: -5/s}":                          `line 3: leak -5/s: -5 must be from 1 to 1000000`,
		"{window: 5/-1s}":                       `line 3: window 5/-1s: the period must be from 1µs to 8784h`,
		"{window: 5/100ns}":                     `line 3: window 5/100ns: the period must be from 1µs`,
		"{window: 5/1500ns}":                    `line 3: window 5/1.5µs: the period must be whole microseconds`,
		"{window: 5/9000h}":                     `line 3: window 5/9000h: the period must be from 1µs to 8784h`,
		"{spacing: 3}":                          `line 3: spacing "3": want a duration such as 3s`,
		"{spacing: 1/3s}":                       `line 3: spacing "1/3s": want a duration`,
		"{window: 10/1m, spacing: 3s}":          `line 3: window and spacing in one rule: make them two`,
		"{window: 10/1m, window: 9/1m}":         `line 3: window stands twice in one rule`,
		"{over: drop}":                          `line 3: a rule without a kind: want one such as {window: 10/1m}`,
		"{}":                                    `line 3: a rule without a kind`,
		"{window: 10/1m, over: reject}":         `line 3: over "reject": want defer or drop`,
		"{window: 10/1m, shadow: yes please}":   `line 3: shadow "yes please": want true or false`,
		"{window: 10/1m, burts: 5}":             `line 3: unknown key "burts": want a kind (leak, `,
		"{window: 10/1m, burst: 5}":             `line 3: window has no burst: only token_bucket has`,
		"{leak: 50/s, ramp: soon}":              `line 3: ramp "soon": want a time such as 1m`,
		"{leak: 50/s, ramp: 10ms}":              `line 3: leak 50/s ramp 10ms: ramp 10ms must be from 1s to 168h`,
		"{window: 50/1s, ramp: 1m}":             `line 3: window has no ramp: only leak has`,
		"{leak: 10/1m, buckets: 5}":             `line 3: leak has no buckets: only sliding_counter has`,
		"{token_bucket: 10/1m}":                 `line 3: token_bucket needs burst, the tokens that it holds: {token_bucket: 10/1m, burst: 10}`,
		"{token_bucket: 10/1m, burst: 0}":       `line 3: token_bucket 10/1m burst 0: burst 0 must be from 1 to 1000000`,
		"{token_bucket: 10/1m, burst: many}":    `line 3: burst "many": want a whole number`,
		"{token_bucket: 1/8784h, burst: 101}":   `line 3: token_bucket 1/8784h burst 101: burst takes more than a century to refill`,
		"{sliding_counter: 10/1m, buckets: 1}":  `line 3: sliding_counter 10/1m buckets 1: buckets 1 must be from 2 to 60`,
		"{sliding_counter: 10/2us, buckets: 3}": `line 3: sliding_counter 10/2µs buckets 3: each bucket must be at least 1µs long`,
		"{warmup: 2026-12-01}":                  "line 3: warmup: want from and days, such as {from: 2026-12-01, days: {1: 50/24h, 2: 100/24h}}",
		"{warmup: [50/24h]}":                    "line 3: warmup: want from and days, such as {from: ",
		"{warmup: }":                            "line 3: warmup: want from and days, such as {from: ",
		"{warmup: {from: 2026-12-01}}":          "line 3: warmup: want from and days, such as {from: ",
		"{warmup: {days: {1: 50/24h}}}":         "line 3: warmup: want from and days, such as {from: ",
		"\n    warmup:\n      from: 1.12.2026\n      days: {1: 50/24h}":                                           `line 5: warmup: from "1.12.2026": want a date such as 2026-12-01`,
		"{warmup: {from: 2026-02-30, days: {1: 50/24h}}}":                                                         `line 3: warmup: from "2026-02-30": want a date such as 2026-12-01`,
		"{warmup: {from: [2026-12-01], days: {1: 50/24h}}}":                                                       `line 3: warmup: from: want a date such as 2026-12-01`,
		"{warmup: {from: 2026-12-01, days: 50/24h}}":                                                              `line 3: warmup: days: want windows by the days from which they hold, such as {1: 50/24h, 2: 100/24h}`,
		"{warmup: {from: 2026-12-01, days: {}}}":                                                                  `line 3: warmup: days: want windows by the days`,
		"{warmup: {from: 2026-12-01, days: {1: 50/24h}, zone: UTC}}":                                              `line 3: warmup: unknown key "zone": want from and days; zone, over and others stand beside warmup`,
		"{warmup: {from: 2026-12-01, from: 2026-12-02, days: {1: 50/24h}}}":                                       `line 3: warmup: from stands twice`,
		"\n    warmup:\n      from: 2026-12-01\n      days:\n        2: 50/24h":                                   `line 7: warmup: the first day is 2; want 1, the day of from`,
		"\n    warmup:\n      from: 2026-12-01\n      days:\n        1: 50/24h\n        7: 9/1h\n        2: 5/1h": `line 9: warmup: day 2 behind day 7; want the days in ascending order`,
		"\n    warmup:\n      from: 2026-12-01\n      days:\n        1: 50/24h\n        1: 9/1h":                  `line 8: warmup: day 1 stands twice`,
		"\n    warmup:\n      from: 2026-12-01\n      days:\n        1: 50/24h\n        2: fifty":                 `line 8: warmup: day 2: window "fifty": want COUNT/PERIOD such as 50/s or 10/1m`,
		"{warmup: {from: 2026-12-01, days: {1: [50/24h]}}}":                                                       `line 3: warmup: day 1: want a window such as 50/24h`,
		"{warmup: {from: 2026-12-01, days: {0: 50/24h}}}":                                                         `line 3: warmup: day "0": want a number from 1 to 3660`,
		"{warmup: {from: 2026-12-01, days: {mon: 50/24h}}}":                                                       `line 3: warmup: day "mon": want a number from 1 to 3660`,
		"{warmup: {from: 2026-12-01, days: {1: 0/24h}}}":                                                          `line 3: warmup: day 1: window 0/24h: 0 must be from 1 to 1000000`,
		"{warmup: {from: 2026-12-01, days: {1: 50/9000h}}}":                                                       `line 3: warmup: day 1: window 50/9000h: the period must be from 1µs to 8784h`,
		"{warmup: {from: 2026-12-01, days: {1: 50/24h, 2: 100/day}}}":                                             `line 3: warmup: day 2: 100/day behind 50/24h would forget what was counted; want all windows by the same unit of the calendar, or none of them`,
		"{warmup: {from: 2026-12-01, days: {1: 50/24h}}, zone: user}":                                             `line 3: warmup 2026-12-01 1:50/24h user: a warm-up has the same days for all; want a zone such as Europe/Paris, or none for UTC`,
		"{warmup: {from: 2026-12-01, days: {1: 50/24h}}, zone: Europe/Pari}":                                      `line 3: warmup 2026-12-01 1:50/24h Europe/Pari: there is no zone "Europe/Pari"; did you mean Europe/Paris?`,
		"{warmup: {from: 2026-12-01, days: {1: 50/24h}}, window: 5/1h}":                                           `line 3: warmup and window in one rule: make them two`,
		"{window: 5/1h, warmup: {from: 2026-12-01, days: {1: 50/24h}}}":                                           `line 3: window and warmup in one rule: make them two`,
		"{warmup: {from: 2026-12-01, days: {1: 50/24h}}, ramp: 1m}":                                               `line 3: warmup has no ramp: only leak has`,
		"{warmup: {from: 2026-12-01, days: {1: 50/24h}}, days: mon-fri}":                                          `line 3: warmup has no days and no holidays: only hours have`,
		"{leak: 5/s, zone: UTC}":                                                                                  `line 3: leak has no zone: only hours and warmup have, and windows such as {window: 3/day, zone: Europe/Paris}`,
		"window 10/1m":                                                                                            `line 3: want a rule such as {window: 10/1m}`,
		"[window]":                                                                                                `line 3: want a rule such as {window: 10/1m}`,
		"\n    window: 10/1m\n    over: sometimes\n":                                                              `line 5: over "sometimes": want defer or drop`,
	}
	for text, want := range tests {
		var got struct{ Rules []written }
		err := yaml.Unmarshal([]byte("rules:\n  - {leak: 1/s}\n  - "+text), &got)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s:\n got %v\nwant %s", text, err, want)
		}
	}
}

// Whatever the text, a rule that is read is valid and survives being written.
func FuzzRuleYAML(f *testing.F) {
	f.Add("{window: 10/1m, over: drop}")
	f.Add("{token_bucket: 10/1m, burst: 20, shadow: true}")
	f.Add("{sliding_counter: 1000/1h, buckets: 2, count_dropped: true}")
	f.Add("{warmup: {from: 2026-12-01, days: {1: 50/24h, 2: 100/24h, 7: 1000/24h}}, zone: Europe/Paris, over: drop}")
	f.Add("warmup:\n  days: &d {1: 5/day}\n  from: 2026-12-01")
	f.Add("a: &a {leak: 50/s}\nspacing: *a")
	f.Fuzz(func(t *testing.T, text string) {
		var rule written
		if yaml.Unmarshal([]byte(text), &rule) != nil || rule == (written{}) {
			return
		}
		if err := rule.Validate(); err != nil {
			t.Fatalf("%q became an invalid rule: %v", text, err)
		}
		line, err := yaml.Marshal(rule)
		if err != nil {
			t.Fatal(err)
		}
		var again written
		if err := yaml.Unmarshal(line, &again); err != nil || again != rule {
			t.Fatalf("%q: %s became %+v, %v", text, line, again, err)
		}
	})
}
