package leader

import (
	"slices"
	"testing"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// The claims of a lane stand together, whatever other lanes its user has: a lane that is taken back in two steps is
// known by that.
func TestClaimsByLane(t *testing.T) {
	var claims []envelope.Claim
	for slot := int64(1); slot <= 100; slot++ {
		for _, label := range []string{"", "1a2b", "3c4d"} {
			lane := envelope.Lane{Tenant: "birch", User: "teacher-42", Priority: envelope.Normal, Label: label}
			claims = append(claims, envelope.Claim{Lane: lane, Stamp: envelope.Stamp(1000 - slot), Spent: slot})
		}
	}
	slices.SortFunc(claims, byLane)
	seen := make(map[envelope.Lane]bool)
	for i, claim := range claims {
		switch {
		case i > 0 && claims[i-1].Lane == claim.Lane:
			if claims[i-1].Spent > claim.Spent {
				t.Fatalf("slot %d stands before slot %d", claims[i-1].Spent, claim.Spent)
			}
		case seen[claim.Lane]:
			t.Fatalf("claims of lane %s stand between those of others", claim.Lane.Name())
		}
		seen[claim.Lane] = true
	}
}
