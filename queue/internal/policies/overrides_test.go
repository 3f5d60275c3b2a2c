package policies

import (
	"fmt"
	"testing"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// An override replaces what it says, of whom it names; all else is as the policies say, and everything is when it has ended.
func TestAnOverrideReplacesWhatItSays(t *testing.T) {
	const kept = `
queue: {rules: [{leak: 900/s}], concurrency: 90}
default: p
policies:
  p: {tenant: {rules: [{leak: 9/s}], concurrency: 9, capacity: 99}, user: {rules: [{spacing: 1s}], concurrency: 1, capacity: 11}}
limits:
  domain:
    key: [keys.domain]
    rules: [{leak: 5/s}]
    concurrency: 5
    capacity: 55
    each: {"big*": {rules: [{leak: 6/s}], concurrency: 6}, free: unlimited}
overrides:
`
	jobOf := func(tenant, user, domain string) (envelope.Lane, *envelope.Envelope) {
		return envelope.Lane{Tenant: tenant, User: user, Priority: envelope.Normal}, &envelope.Envelope{Cost: 1, Keys: map[string]string{"domain": domain}}
	}
	for _, test := range []struct {
		override, tenant, user, domain string
		limit                          int // of the job's, which is looked at
		during, after                  string
	}{
		{"limit: queue, rules: [leak 1/s]", "t", "u", "x", 0, "leak 1/s 90 0", "leak 900/s 90 0"},
		{"limit: tenant, key: [t], rules: [leak 1/s]", "t", "u", "x", 1, "leak 1/s 9 99", "leak 9/s 9 99"},
		{"limit: tenant, key: [t], concurrency: \"2\"", "t", "u", "x", 1, "leak 9/s 2 99", "leak 9/s 9 99"},
		{"limit: tenant, key: [t], capacity: 3", "t", "u", "x", 1, "leak 9/s 9 3", "leak 9/s 9 99"},
		{"limit: tenant, key: [t], capacity: 3", "t", "u", "x", 2, "spacing 1s 1 11", "spacing 1s 1 11"},
		{"limit: tenant, key: [t], capacity: 3", "other", "u", "x", 1, "leak 9/s 9 99", "leak 9/s 9 99"},
		{"limit: user, key: [t, u], rules: [leak 1/s]", "t", "u", "x", 2, "leak 1/s 1 11", "spacing 1s 1 11"},
		{"limit: user, key: [t, u], concurrency: \"2\", capacity: 3", "t", "u", "x", 2, "spacing 1s 2 3", "spacing 1s 1 11"},
		{"limit: user, key: [t, u], capacity: 3", "t", "other", "x", 2, "spacing 1s 1 11", "spacing 1s 1 11"},
		{"limit: user, key: [t, u], capacity: 3", "other", "u", "x", 2, "spacing 1s 1 11", "spacing 1s 1 11"},
		{"limit: domain, key: [x], rules: [leak 1/s]", "t", "u", "x", 3, "leak 1/s 5 55", "leak 5/s 5 55"},
		{"limit: domain, key: [x], capacity: 3", "t", "u", "x", 3, "leak 5/s 5 3", "leak 5/s 5 55"},
		{"limit: domain, key: [x], capacity: 3", "t", "u", "y", 3, "leak 5/s 5 55", "leak 5/s 5 55"},
		{"limit: domain, key: [big1], concurrency: \"2\"", "t", "u", "big1", 3, "leak 6/s 2 0", "leak 6/s 6 0"},
		{"limit: domain, key: [big1], concurrency: \"2\"", "t", "u", "big2", 3, "leak 6/s 6 0", "leak 6/s 6 0"},
		{"limit: domain, key: [free], rules: [leak 1/s]", "t", "u", "free", 3, "leak 1/s 0 0", "none"},
	} {
		for now, want := range map[int64]string{999: test.during, 1000: test.after} {
			p, err := Compile("q", kept+"  - {"+test.override+", since: 1, until: 1000}\n", 7, now)
			if err != nil {
				t.Fatal(err)
			}
			got := "none"
			lane, env := jobOf(test.tenant, test.user, test.domain)
			if uses := p.Uses(lane, env); test.limit < len(uses) {
				use := uses[test.limit]
				got = fmt.Sprintf("%s %d %d", use.Rules.Name(0), use.Concurrency.Jobs, use.Capacity)
			}
			if got != want {
				t.Errorf("%s: at %d µs of 1000, limit %d is %q, want %q", test.override, now, test.limit, got, want)
			}
			if ends := p.End() == 1000; ends != (now < 1000) || p.Since() != map[bool]int64{true: 7, false: 1000}[ends] {
				t.Errorf("at %d µs: ends %d, since %d", now, p.Ends, p.Since())
			}
		}
	}
}
