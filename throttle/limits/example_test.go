package limits_test

import (
	"context"
	"fmt"

	"github.com/waterclock/waterclock/throttle"
	"github.com/waterclock/waterclock/throttle/limits"
)

func Example() {
	const file = `
limits:
  marketing: {jobs: {type: [marketing, promo_*]}, key: [tenant, user], rules: [{window: 2/24h, over: drop}]}
  domain:    {key: keys.domain, rules: [{leak: 10/s}], each: {gmail.com: {rules: [{leak: 100/s}]}}}
`
	set, err := limits.Parse("limits.yaml", []byte(file), throttle.New(throttle.NewMemoryStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range 3 {
		d, err := set.Allow(context.Background(), limits.Fields{
			Tenant: "school-7", User: "teacher-42", Type: "promo_autumn", Keys: map[string]string{"domain": fmt.Sprint("host-", i)},
		})
		fmt.Println(d.Outcome, d.Limit, d.Key, err)
	}
	// Output:
	// admitted domain [host-0] <nil>
	// admitted domain [host-1] <nil>
	// dropped marketing [school-7 teacher-42] <nil>
}
