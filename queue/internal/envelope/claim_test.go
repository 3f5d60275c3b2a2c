package envelope

import "testing"

// A claim tells its job, its lane, when the job may start, and what the rules remember.
func TestClaims(t *testing.T) {
	lane := Lane{Tenant: "school 7", User: "a:b", Priority: High}
	for name, want := range map[string]Claim{
		"0123456789abc 100 school%207:a%3Ab:0":     {Stamp: "0123456789abc", Lane: lane, Slot: 100, Spent: 100},
		"0123456789abc 130 school%207:a%3Ab:0 100": {Stamp: "0123456789abc", Lane: lane, Slot: 100, Spent: 130},
	} {
		if c, err := ParseClaim(name); err != nil || c != want || c.String() != name {
			t.Errorf("%q is %+v, %v; want %+v", name, c, err, want)
		}
	}
}

// What is not the name of a claim keeps its name, so that it can be taken out of Redis.
func TestMalformedClaims(t *testing.T) {
	for _, name := range []string{
		"", "x", "s 1", "s x t:u:1", "s 1 t:u", "s 1 t:u:1 x", "s 1 t:u:1 1", "s 1 t:u:1 2 3", "s 01 t:u:1", "s 1 ::0", "s 1 t:%41:1",
	} {
		c, err := ParseClaim(name)
		if err == nil || c.String() != name || c.Lane != (Lane{}) {
			t.Errorf("%q is %+v, %v", name, c, err)
		}
	}
}
