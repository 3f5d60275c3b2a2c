package queuetest

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// Verify finds starts that break a rule of the queue, of a tenant and of a user.
func TestVerifyFindsViolations(t *testing.T) {
	begin := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	at := func(user string, slot, started time.Duration) queue.Info {
		return queue.Info{Tenant: "school", User: user, Slot: begin.Add(slot), Started: begin.Add(started), Cost: 1}
	}
	one := func(rule throttle.Rule) []throttle.Rule { return []throttle.Rule{rule} }
	policy := func(p queue.Policy) queue.Policies {
		return queue.Policies{Default: "p", Policies: map[string]queue.Policy{"p": p}}
	}
	late := []queue.Info{at("a", 0, 90*time.Millisecond), at("a", 100*time.Millisecond, 100*time.Millisecond)}
	two := []queue.Info{at("a", 0, 0), at("b", 50*time.Millisecond, 50*time.Millisecond)}
	tests := map[string]struct {
		starts []queue.Info
		limits queue.Policies
		want   int
	}{
		"kept":                  {two, policy(queue.Policy{Tenant: one(throttle.Leak(20, time.Second)), User: one(throttle.Window(1, time.Hour))}), 0},
		"the queue's":           {two, queue.Policies{Queue: one(throttle.Spacing(time.Second))}, 1},
		"a tenant's":            {two, policy(queue.Policy{Tenant: one(throttle.Leak(10, time.Second))}), 1},
		"a user's":              {late, policy(queue.Policy{User: one(throttle.Window(1, time.Hour))}), 1},
		"a spacing is by start": {late, policy(queue.Policy{User: one(throttle.Spacing(50 * time.Millisecond))}), 1},
		"a leak is by slot":     {late, policy(queue.Policy{User: one(throttle.Leak(10, time.Second))}), 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if found := violations(test.starts, test.limits); len(found) != test.want {
				t.Errorf("%v, want %d", found, test.want)
			}
		})
	}
}

// The page shows tests that run.
func TestThePageShowsTheseTests(t *testing.T) {
	page, err := os.ReadFile("../../docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("queuetest_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```go\n")
	if len(blocks) < 4 {
		t.Fatalf("%d blocks of Go, want at least 3", len(blocks)-1)
	}
	for _, block := range blocks[1:] {
		block, _, _ = strings.Cut(block, "```")
		if !strings.Contains(string(code), block) {
			t.Errorf("this stands in no test:\n%s", block)
		}
	}
}
