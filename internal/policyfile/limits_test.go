package policyfile

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v3"

	"github.com/waterclock/waterclock/throttle"
)

const named = `
limits:
  marketing: {jobs: {type: [marketing, promo_*]}, key: [tenant, user], rules: [{window: 5/24h, over: drop}]}
  domain:
    key: keys.domain
    rules: [{leak: 10/s}]
    concurrency: 20
    each:
      gmail.com: {rules: [{leak: 100/s}]}
      "*.example": unlimited
  tokens: {counts: tokens, key: [tenant], missing: refuse, rules: [{token_bucket: 90000/1m, burst: 90000}]}
  requests: {counts: jobs, rules: [{window: 570000/1m}]}
  bulk: {jobs: {type: bulk}, counts: cost, concurrency: 25%}
  route: {key: keys.route, detailed: true}
  chat: {jobs: {type: chat}}
  account: {key: type, shared: true, rules: [{leak: 7/s}], each: {x: {rules: [{leak: 8/s}]}}}
  pool: {shared: true, rules: [{window: 9/1s}]}
  shop: {key: tenant, each: {big: {concurrency: 5}}}
`

// What is read of limits by name is written again, and read as the same.
func TestLimits(t *testing.T) {
	rules := func(rules ...throttle.Rule) Limits { return Limits{Rules: rules} }
	want := map[string]Limit{
		"marketing": {Types: []string{"marketing", "promo_*"}, Key: []string{"tenant", "user"}, Bounds: Bounds{Limits: rules(throttle.Window(5, 24*time.Hour).OrDrop())}},
		"domain": {
			Key:    []string{"keys.domain"},
			Bounds: Bounds{Limits: Limits{[]throttle.Rule{throttle.Leak(10, time.Second)}, Concurrency{Jobs: 20}}},
			Each:   map[string]Bounds{"gmail.com": {Limits: rules(throttle.Leak(100, time.Second))}, "*.example": {Unlimited: true}},
		},
		"tokens":   {Counts: "tokens", Key: []string{"tenant"}, Refuse: true, Bounds: Bounds{Limits: rules(throttle.TokenBucket(90000, time.Minute, 90000))}},
		"requests": {Counts: CountsJobs, Bounds: Bounds{Limits: rules(throttle.Window(570000, time.Minute))}},
		"bulk":     {Types: []string{"bulk"}, Bounds: Bounds{Limits: Limits{Concurrency: Concurrency{Percent: 25}}}},
		"route":    {Key: []string{"keys.route"}, Detailed: true},
		"account":  {Key: []string{"type"}, Bounds: Bounds{Shared: true, Limits: rules(throttle.Leak(7, time.Second))}, Each: map[string]Bounds{"x": {Shared: true, Limits: rules(throttle.Leak(8, time.Second))}}},
		"pool":     {Bounds: Bounds{Shared: true, Limits: rules(throttle.Window(9, time.Second))}},
		"chat":     {Types: []string{"chat"}},
		"shop":     {Key: []string{"tenant"}, Each: map[string]Bounds{"big": {Limits: Limits{Concurrency: Concurrency{Jobs: 5}}}}},
	}
	first, err := Parse("limits.yaml", []byte(named))
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Parse("written.yaml", text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	for _, got := range []File{first, second} {
		if diff := cmp.Diff(want, got.Limits, cmpopts.EquateComparable(throttle.Rule{})); diff != "" {
			t.Errorf("(-want +got):\n%s\n%s", diff, text)
		}
	}
}

func TestBadLimits(t *testing.T) {
	for text, want := range map[string]string{
		"a b: {rules: [{leak: 1/s}]}":                                        `limits: name "a b"; want 1 to 64 letters, digits, dots, dashes or underscores`,
		"tenant: {rules: [{leak: 1/s}]}":                                     `limits: name "tenant"; want another name: everybody has the limits queue, tenant and user, which stand in queue and policies`,
		"a: {}":                                                              `limits.a: limits nothing; want a key or jobs, which can be paused, or rules, concurrency or capacity`,
		"a: {counts: jobs, missing: refuse}":                                 `limits.a: limits nothing; want a key or jobs, which can be paused, or rules, concurrency or capacity`,
		"a: {rule: [{leak: 1/s}]}":                                           `limits.a.rule: unknown key; want jobs, key, counts, rules, concurrency, capacity, each, missing, detailed or shared`,
		"a: {rules: [{leak: 1}]}":                                            `limits.a.rules[0]: leak "1": want COUNT/PERIOD such as 50/s or 10/1m (a day is 24h)`,
		"a: {key: [domain], rules: [{leak: 1/s}]}":                           `limits.a.key[0]: "domain"; want tenant, user, type, or keys.NAME for one of the job's own keys`,
		"a: {key: [type, type], rules: [{leak: 1/s}]}":                       `limits.a.key[1]: type stands twice in one key`,
		"a: {key: [user], rules: [{leak: 1/s}]}":                             `limits.a.key: user without tenant; want [tenant, user]: users of different tenants may have one name`,
		"a: {key: {tenant: 1}, rules: [{leak: 1/s}]}":                        `limits.a.key: keys and values; want tenant, user, type, or keys.NAME for one of the job's own keys`,
		"a: {counts: Tokens, rules: [{leak: 1/s}]}":                          `limits.a.counts: "Tokens"; want jobs, cost, or the name of a unit of the job's own, such as tokens`,
		"a: {key: tenant, detailed: yes please}":                             `limits.a.detailed: "yes please"; want true or false`,
		"a: {detailed: true, rules: [{leak: 1/s}]}":                          `limits.a.detailed: values of no key; want a key, such as key: [tenant]`,
		"a: {missing: drop, rules: [{leak: 1/s}]}":                           `limits.a.missing: "drop"; want ignore or refuse`,
		"a: {overflow: drop_oldest, rules: [{leak: 1/s}]}":                   `limits.a.overflow: unknown key; want jobs, key, counts, rules, concurrency, capacity, each, missing, detailed or shared`,
		"a: {capacity: -1}":                                                  `limits.a.capacity: "-1"; want a number of jobs such as 100000, or 0 for no bound`,
		"a: {capacity: 0}":                                                   `limits.a: limits nothing; want a key or jobs, which can be paused, or rules, concurrency or capacity`,
		"a: {key: type, capacity: 1, each: {x: {capacity: y}}}":              `limits.a.each.x.capacity: "y"; want a number of jobs such as 100000, or 0 for no bound`,
		"a: {concurrency: 0}":                                                `limits.a.concurrency: "0"; want 1 to 1000000 jobs such as 20, or a share of all places from 1% to 100% such as 25%`,
		"a: {jobs: {types: x}, rules: [{leak: 1/s}]}":                        `limits.a.jobs.types: unknown key; want type`,
		"a: {jobs: {type: ['']}, rules: [{leak: 1/s}]}":                      `limits.a.jobs.type[0]: an empty type; want one such as marketing, or a pattern such as promo_*`,
		"a: {each: {x: unlimited}, rules: [{leak: 1/s}]}":                    `limits.a.each: values of no key; want a key, such as key: [tenant]`,
		"a: {key: type, each: {x: {}}, rules: [{leak: 1/s}]}":                `limits.a.each.x: limits nothing; want rules, concurrency or capacity; unlimited only for a value in each`,
		"a: {key: type, each: {x: none}, rules: [{leak: 1/s}]}":              `limits.a.each.x: "none"; want keys and values`,
		"a: unlimited":                                                       `limits.a: "unlimited"; want keys and values`,
		"a: {shared: true, key: type}":                                       `limits.a: shared; want rules, and neither concurrency nor capacity, which each queue counts by itself: they can stand in another limit`,
		"a: {shared: true, rules: [{leak: 1/s}], concurrency: 2}":            `limits.a: shared; want rules, and neither concurrency nor capacity, which each queue counts by itself: they can stand in another limit`,
		"a: {shared: 1, rules: [{leak: 1/s}]}":                               `limits.a.shared: "1"; want true or false`,
		"a: {shared: true, rules: [{leak: 1/s}, {fixed_window: 1/50ms}]}":    `limits.a.rules[1]: fixed_window 1/50ms of a shared limit; want leaks, token_buckets, windows, warmups, spacings, and fixed_windows and sliding_counters that count by 100ms or longer, which neither drop nor have count_dropped`,
		"a: {shared: true, rules: [{sliding_counter: 9/200ms, buckets: 3}]}": `limits.a.rules[0]: sliding_counter 9/200ms buckets 3 of a shared limit; want leaks, token_buckets, windows, warmups, spacings, and fixed_windows and sliding_counters that count by 100ms or longer, which neither drop nor have count_dropped`,
		"a: {shared: true, rules: [{window: 1/s, over: drop}]}":              `limits.a.rules[0]: window 1/1s of a shared limit; want leaks, token_buckets, windows, warmups, spacings, and fixed_windows and sliding_counters that count by 100ms or longer, which neither drop nor have count_dropped`,
		"a: {key: type, shared: true, rules: [{leak: 1/s}], each: {x: {rules: [{leak: 1/s, over: drop}]}}}": `limits.a.each.x.rules[0]: leak 1/s of a shared limit; want leaks, token_buckets, windows, warmups, spacings, and fixed_windows and sliding_counters that count by 100ms or longer, which neither drop nor have count_dropped`,
		"a: {key: [keys.a, keys.b, keys.c, keys.d, keys.e], concurrency: 1}":                                `limits.a.key[4]: a key has 4 fields at most`,
	} {
		_, err := Parse("limits.yaml", []byte("default: x\npolicies: {x: {}}\nlimits:\n  "+text))
		if want = "limits.yaml:4: " + want; err == nil || err.Error() != want || !errors.Is(err, Err) {
			t.Errorf("%s:\n got %v\nwant %s", text, err, want)
		}
	}
}
