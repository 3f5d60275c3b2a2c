package leader

import (
	"testing"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// Rules get back what they have counted of a claim: of a job that was replaced under its collapse key since, what the worker says, and
// nothing if it cannot say.
func TestWhatRulesGetBack(t *testing.T) {
	decided, replacement := &envelope.Envelope{Stamp: "1"}, &envelope.Envelope{Stamp: "2", Cost: 3}
	claim := envelope.Claim{Stamp: decided.Stamp}
	for name, test := range map[string]struct {
		request
		want *envelope.Envelope
	}{
		"the job as it was": {request{Return: store.Return{Claim: claim, Kind: store.ReturnUnstarted}, env: decided}, decided},
		"a late one":        {request{Return: store.Return{Claim: claim, Kind: store.ReturnLate}, env: decided}, decided},
		"a replaced one of a worker with no room": {request{Return: store.Return{Claim: claim, Kind: store.ReturnUnstarted}, env: replacement}, nil},
		"a replaced one that was compared":        {request{Return: store.Return{Claim: claim, Kind: store.ReturnChanged, Counted: decided}, env: replacement}, decided},
		"a replaced one of which a comparison":    {request{Return: store.Return{Claim: claim, Kind: store.ReturnChanged}, env: replacement}, nil},
		"a job that is gone":                      {request{Return: store.Return{Claim: claim, Kind: store.ReturnUnstarted}}, nil},
	} {
		if got := test.counted(); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}
