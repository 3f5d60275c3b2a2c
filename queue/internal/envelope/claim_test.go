package envelope

import "testing"

// A claim keeps the slot that its job was given first, and the one that was paid for it,
// however often the job is late.
func TestClaims(t *testing.T) {
	lane := Lane{Tenant: "school 7", User: "a:b", Priority: High}
	near, far := ClaimName("0123456789abc", 100, 100, lane), ClaimName("0123456789abc", 130, 100, lane)
	for claim, want := range map[string]struct{ spent, slot, paid int64 }{
		near:                                 {100, 100, 100},
		far:                                  {130, 100, 130},
		Restarted(near, 200):                 {200, 100, 100},
		Restarted(far, 200):                  {200, 100, 130},
		Restarted(Restarted(far, 200), 3000): {3000, 100, 130},
	} {
		stamp, spent, of, err := ParseClaim(claim)
		if err != nil || stamp != "0123456789abc" || of != lane || spent != want.spent {
			t.Errorf("%q: %q, %d, %v, %v", claim, stamp, spent, of, err)
		}
		if ClaimSlot(claim) != want.slot || ClaimPaid(claim) != want.paid || ClaimedJob(claim) != ClaimedJob(near) {
			t.Errorf("%q: slot %d, paid %d, job %q; want %+v", claim, ClaimSlot(claim), ClaimPaid(claim), ClaimedJob(claim), want)
		}
	}
}
