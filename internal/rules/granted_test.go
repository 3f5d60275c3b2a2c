package rules_test

import (
	"testing"

	"github.com/waterclock/waterclock/internal/rules"
)

// A refusal drops whatever costs as much at its instant, and lets nothing start. Nobody gets it back: what has started at the instant would be
// given back instead.
func TestRefusals(t *testing.T) {
	set, st := rules.Compile(0, rules.Rule{Kind: rules.Granted}), &rules.State{}
	start := rules.Grant{At: 100, Cost: 1, Objection: "leak 1/1s"}
	st.Grant(start)
	for range 3 {
		st.Grant(rules.Grant{At: 100, Cost: 1, Refused: "window 5/1s"})
		st.Grant(rules.Grant{At: 100, Cost: 2, Refused: "window 5/1s"})
	}
	if n := len(st.Grants()); n != 3 {
		t.Errorf("%d grants and refusals, want 3", n)
	}
	if by, objects := st.Refused(100, 1), st.Objection(100, 1); by != "" || objects != start.Objection {
		t.Errorf("where one may start, it is refused by %q, and %q objects", by, objects)
	}
	set.Spend(st, rules.At(100), 1, true)
	for range 2 {
		if at, _ := set.Earliest(st, 50, 1); at != 100 || st.Refused(at, 1) != "window 5/1s" || st.Refused(at, 2) != "window 5/1s" || st.Refused(99, 1) != "" {
			t.Errorf("at %d it is refused by %q, and a cost of 2 by %q", at, st.Refused(at, 1), st.Refused(at, 2))
		}
	}
	if missed := st.Missed(101); len(missed) > 0 || len(st.Grants()) > 0 {
		t.Errorf("%v are given back, and %v are left", missed, st.Grants())
	}
}
