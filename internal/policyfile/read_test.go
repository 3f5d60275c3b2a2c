package policyfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/waterclock/waterclock/throttle"
)

func TestParse(t *testing.T) {
	data, err := os.ReadFile("testdata/good_policies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := File{
		Queue:   Limits{Rules: []throttle.Rule{throttle.Leak(5000, time.Second)}, Concurrency: Concurrency{Jobs: 2000}},
		Default: "standard",
		Policies: map[string]Policy{
			"standard": {
				Tenant: Limits{Rules: []throttle.Rule{throttle.Leak(50, time.Second)}},
				User: Limits{Rules: []throttle.Rule{
					throttle.Window(10, time.Minute),
					throttle.Spacing(3 * time.Second),
					throttle.Window(50, 24*time.Hour).OrDrop(),
				}},
				Capacity: 100000,
				MaxWait:  15 * time.Minute,
			},
			"premium": {
				Tenant:     Limits{Rules: []throttle.Rule{throttle.Leak(500, time.Second)}, Concurrency: Concurrency{Percent: 25}},
				User:       Limits{Rules: []throttle.Rule{throttle.Leak(500, time.Second)}, Concurrency: Concurrency{Jobs: 1}},
				DropOldest: true,
			},
			"free": {},
		},
		Tenants: map[string]string{"school-7": "premium", "школа: 8": "free", "1234": "premium"},
	}
	for name, text := range map[string]string{
		"unix": string(data), "windows": "\ufeff" + strings.ReplaceAll(string(data), "\n", "\r\n"),
	} {
		got, err := Parse("policies.yaml", []byte(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(throttle.Rule{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if err := got.Check(); err != nil {
			t.Error(err)
		}
	}
}

func TestParseMinimal(t *testing.T) {
	for _, text := range []string{"{}", "policies:", "tenants:\n  # none yet\nqueue:", "queue: {rules: }"} {
		got, err := Parse("policies.yaml", []byte(text))
		if err != nil || len(got.Policies)+len(got.Tenants)+len(got.Queue.Rules) != 0 {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

// One file for each mistake, and the whole message: the file, the line, where, what is
// wrong and what would be right.
func TestBadFiles(t *testing.T) {
	tests := map[string]string{
		"anchor":              `:2: not YAML: unknown anchor 'nobody' referenced`,
		"capacity":            `:4: policies.standard.tenant.capacity: "plenty"; want a number of jobs such as 100000, or 0 for no bound`,
		"capacity_kind":       `:4: policies.standard.tenant.capacity: a list; want a number of jobs such as 100000, or 0 for no bound`,
		"capacity_negative":   `:4: policies.standard.tenant.capacity: "-1"; want a number of jobs such as 100000, or 0 for no bound`,
		"concurrency":         `:2: queue.concurrency: "many"; want 1 to 1000000 jobs such as 20, or a share of all places from 1% to 100% such as 25%`,
		"concurrency_zero":    `:3: policies.standard.tenant.concurrency: "0"; want 1 to 1000000 jobs such as 20, or a share of all places from 1% to 100% such as 25%`,
		"concurrency_share":   `:4: policies.standard.user.concurrency: "101%"; want 1 to 1000000 jobs such as 20, or a share of all places from 1% to 100% such as 25%`,
		"concurrency_kind":    `:1: queue.concurrency: a list; want 1 to 1000000 jobs such as 20, or a share of all places from 1% to 100% such as 25%`,
		"control":             `:3: not YAML: control characters are not allowed`,
		"default":             `:1: default: there is no policy "standart"; want premium or standard`,
		"default_kind":        `:1: default: a list; want the name of a policy`,
		"default_none":        `:1: default: there is no policy "standard"; there is none in policies`,
		"default_nothing":     `:1: default: nothing; want the name of a policy`,
		"empty":               `:1: the file is empty; want at least one of partitions, queue, default, policies, tenants, limits`,
		"first_line":          `:1: not YAML: did not find expected node content`,
		"flow":                `:2: not YAML: did not find expected ',' or '}'`,
		"indent":              `:3: not YAML: did not find expected key`,
		"key_kind":            `:2: policies: a key that is a list; want a name`,
		"key_nothing":         `:3: tenants: a key that is nothing; want a name`,
		"list":                `:1: a list; want keys and values`,
		"max_wait":            `:3: policies.standard.max_wait: "15"; want a time such as 15m, at least 1ms, or 0 for no bound`,
		"max_wait_day":        `:3: policies.standard.max_wait: "1d"; want a time such as 15m, at least 1ms, or 0 for no bound`,
		"max_wait_tiny":       `:3: policies.standard.max_wait: "10us"; want a time such as 15m, at least 1ms, or 0 for no bound`,
		"merge_key":           `:3: policies.premium."<<": unknown key; want tenant, user, max_wait, closed_counts, weight or digest`,
		"null":                `:1: the file is empty; want at least one of partitions, queue, default, policies, tenants, limits`,
		"overflow":            `:4: policies.standard.tenant.overflow: "block"; want drop_newest or drop_oldest`,
		"overflow_nothing":    `:4: policies.standard.tenant.overflow: nothing; want drop_newest or drop_oldest`,
		"policies_kind":       `:1: policies: a list; want keys and values`,
		"warmup":              `:11: policies.standard.user.rules[1]: warmup: day 2 behind day 7; want the days in ascending order`,
		"warmup_zone":         `:5: policies.standard.user.rules[0]: warmup 2026-12-01 1:50/24h user: a warm-up has the same days for all; want a zone such as Europe/Paris, or none for UTC`,
		"weight":              `:3: policies.premium.weight: "0"; want a weight from 1 to 100`,
		"weight_large":        `:2: policies.premium.weight: "101"; want a weight from 1 to 100`,
		"policy_key":          `:3: policies.standard.users: unknown key; want tenant, user, max_wait, closed_counts, weight or digest`,
		"policy_kind":         `:2: policies.standard: "15m"; want keys and values`,
		"policy_name":         `:2: policies: name "no spaces"; want 1 to 64 letters, digits, dots, dashes or underscores`,
		"queue_key":           `:2: queue.rule: unknown key; want rules or concurrency`,
		"rule":                `:6: policies.standard.user.rules[1]: window "10 per minute": want COUNT/PERIOD such as 50/s or 10/1m (a day is 24h)`,
		"rule_key":            `:6: policies.standard.user.rules[0]: unknown key "then": want a kind (leak, token_bucket, window, spacing, fixed_window, sliding_counter, hours, warmup) or an option (over, shadow, count_dropped, burst, buckets, ramp, zone, days, holidays, within)`,
		"rule_nothing":        `:4: queue.rules[1]: want a rule such as {window: 10/1m}`,
		"rule_zero":           `:2: queue.rules[0]: leak 0/s: 0 must be from 1 to 1000000`,
		"rules_kind":          `:3: policies.standard.user.rules: keys and values; want a list of rules such as [{window: 10/1m}, {spacing: 3s}]`,
		"rules_text":          `:1: queue.rules: "leak 5/s"; want a list of rules such as [{window: 10/1m}, {spacing: 3s}]`,
		"syntax":              `:3: not YAML: did not find expected node content`,
		"tab":                 `:2: not YAML: found character that cannot start any token; want spaces and no tabs in front of keys`,
		"tenant_empty":        `:3: tenants: a tenant's name has 1 to 1024 bytes, not 0`,
		"tenant_key":          `:3: policies.standard.tenant.capcity: unknown key; want rules, concurrency, capacity or overflow`,
		"tenant_kind":         `:3: tenants.school-7: keys and values; want the name of a policy`,
		"tenant_policy":       `:3: tenants.school-7: there is no policy "premium"; want standard`,
		"tenant_twice":        `:4: tenants."x.y": duplicate key, first in line 3`,
		"tenants_kind":        `:2: tenants: a list; want keys and values`,
		"text":                `:1: "standard"; want keys and values`,
		"partitions_capacity": `:5: limits.mail.capacity: "100"; want none: each partition counts by itself what waits, and a limit without tenant in its key is about jobs of several`,
		"partitions_rule":     `:3: queue.rules[2]: fixed_window 100/1m in a queue with partitions; want hours, leaks, token_buckets, windows, warmups, spacings, and fixed_windows and sliding_counters that count by 100ms or longer; those that count by periods without count_dropped`,
		"top_key":             `:1: polices: unknown key; want partitions, queue, default, policies, tenants or limits`,
		"top_twice":           `:3: default: duplicate key, first in line 1`,
		"twice":               `:4: policies.standard: duplicate key, first in line 2`,
		"two_documents":       `:2: a second document begins; want one`,
		"user_key":            `:4: policies.standard.user.overflow: unknown key; want rules, concurrency, capacity, zone or quiet`,
		"utf8":                `:3: not YAML: invalid trailing UTF-8 octet`,
	}
	files, err := filepath.Glob("testdata/bad_*.yaml")
	if err != nil || len(files) != len(tests) {
		t.Errorf("%d files for %d tests, %v", len(files), len(tests), err)
	}
	for name, want := range tests {
		file := "bad_" + name + ".yaml"
		data, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Error(err)
			continue
		}
		got, err := Parse(file, data)
		if err == nil || err.Error() != file+want {
			t.Errorf("%s:\n got %v\nwant %s", file, err, file+want)
		}
		if !errors.Is(err, Err) || got.Policies != nil {
			t.Errorf("%s: %#v with policies %v", file, err, got)
		}
	}
}

// Whatever the file, nothing panics, no message tells of Go, and what is read is valid.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(named))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, parse := range []func(string, []byte) (File, error){Parse, Parse} {
			p, err := parse("policies.yaml", data)
			switch {
			case err == nil:
				if err := p.Check(); err != nil {
					t.Fatalf("%q was read as invalid policies: %v", data, err)
				}
			case !strings.HasPrefix(err.Error(), "policies.yaml:"):
				t.Fatalf("%q: %v", data, err)
			}
		}
	})
}
