package queue

import (
	"errors"
	"strings"
	"testing"
)

// A concurrency limit that means nothing is refused, and says where and what would be right.
func TestBadConcurrency(t *testing.T) {
	t.Parallel()
	tests := map[string]Concurrency{
		"1 jobs and 1%; want 1 to 1000000 jobs such as 20, or a share":                      {Jobs: 1, Percent: 1},
		"-1; want 1 to 1000000 jobs":                                                        {Jobs: -1},
		"1000001; want 1 to 1000000 jobs":                                                   {Jobs: 1_000_001},
		"101%; want 1 to 1000000 jobs such as 20, or a share of all places from 1% to 100%": {Percent: 101},
		"-5%; want 1 to 1000000 jobs such as 20, or a share of all places from 1% to 100%":  {Percent: -5},
	}
	for want, c := range tests {
		for where, p := range map[string]Policies{
			"queue.concurrency":                    {Concurrency: c},
			"policies.standard.tenant.concurrency": {Policies: map[string]Policy{"standard": {TenantConcurrency: c}}},
			"policies.standard.user.concurrency":   {Policies: map[string]Policy{"standard": {UserConcurrency: c}}},
		} {
			if err := p.Validate(); !errors.Is(err, ErrInvalidPolicies) || !strings.Contains(err.Error(), where+": ") || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s and %q", err, where, want)
			}
		}
	}
}
