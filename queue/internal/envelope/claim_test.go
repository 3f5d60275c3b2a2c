package envelope

import "testing"

// A claim tells its job, its lane, when the job may start, and what the rules remember.
func TestClaims(t *testing.T) {
	lane := Lane{Tenant: "school 7", User: "a:b", Priority: High}
	for claim, want := range map[string]struct{ spent, slot int64 }{
		ClaimName("0123456789abc", 100, 100, lane): {100, 100},
		ClaimName("0123456789abc", 130, 100, lane): {130, 100},
	} {
		stamp, spent, of, err := ParseClaim(claim)
		if err != nil || stamp != "0123456789abc" || of != lane || spent != want.spent || ClaimSlot(claim) != want.slot {
			t.Errorf("%q: %q, spent %d, slot %d, %v, %v", claim, stamp, spent, ClaimSlot(claim), of, err)
		}
	}
}
