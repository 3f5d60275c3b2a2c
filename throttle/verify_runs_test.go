package throttle_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/waterclock/waterclock/throttle"
)

// VerifyConcurrency finds every start that is one too many, and no other.
func TestVerifyConcurrency(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	run := func(subject string, from, until int) throttle.Run {
		r := throttle.Run{Subject: subject, From: begin.Add(time.Duration(from) * time.Second)}
		if until >= 0 {
			r.Until = begin.Add(time.Duration(until) * time.Second)
		}
		return r
	}
	tests := map[string]struct {
		runs []throttle.Run
		want string
	}{
		"nothing ran":                  {nil, "[]"},
		"one after the other":          {[]throttle.Run{run("a", 0, 1), run("a", 1, 2), run("a", 5, 6)}, "[]"},
		"two at once":                  {[]throttle.Run{run("a", 0, 3), run("a", 1, 2)}, "[]"},
		"three at once":                {[]throttle.Run{run("a", 2, 3), run("a", 0, 3), run("a", 1, 4)}, "[a: 3 at once at 2026-11-01T12:00:02Z]"},
		"each subject by itself":       {[]throttle.Run{run("a", 0, 3), run("b", 0, 3), run("a", 1, 3), run("b", 1, 3)}, "[]"},
		"one that has not ended":       {[]throttle.Run{run("a", 0, -1), run("a", 50, 60), run("a", 55, 60)}, "[a: 3 at once at 2026-11-01T12:00:55Z]"},
		"each start that is too many":  {[]throttle.Run{run("a", 0, 9), run("a", 0, 9), run("a", 1, 2), run("a", 3, 4)}, "[a: 3 at once at 2026-11-01T12:00:01Z a: 3 at once at 2026-11-01T12:00:03Z]"},
		"a place is free after an end": {[]throttle.Run{run("a", 0, 2), run("a", 0, 9), run("a", 2, 3), run("a", 3, 4)}, "[]"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := fmt.Sprint(throttle.VerifyConcurrency(test.runs, 2)); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}
