package rules_test

import (
	"fmt"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
)

func Example() {
	set := rules.Compile(0,
		rules.Rule{Kind: rules.Window, Limit: 2, Period: time.Minute},
		rules.Rule{Kind: rules.Spacing, Limit: 1, Period: 3 * time.Second})
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC).UnixMicro()
	stored := ""
	for range 3 {
		var st rules.State
		if err := st.Decode(stored); err != nil {
			fmt.Println(err)
		}
		at, binding := set.Earliest(&st, now, 1)
		set.Spend(&st, rules.At(at), 1, true)
		stored = string(st.Append(nil))
		because := "nothing is in the way"
		if binding >= 0 {
			because = set.Name(binding)
		}
		fmt.Println(time.Duration(at-now)*time.Microsecond, because)
	}
	fmt.Println(len(stored), "bytes")
	// Output:
	// 0s nothing is in the way
	// 3s spacing 3s
	// 1m0s window 2/1m
	// 25 bytes
}
