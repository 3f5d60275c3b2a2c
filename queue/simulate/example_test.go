package simulate_test

import (
	"fmt"
	"time"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/simulate"
	"github.com/waterclock/waterclock/throttle"
)

// Three messages are offered at once to a user who may get two a minute.
func ExampleRun() {
	policies := queue.Policies{
		Default:  "standard",
		Policies: map[string]queue.Policy{"standard": {User: []throttle.Rule{throttle.Window(2, time.Minute)}}},
	}
	eight := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	job := queue.Job{Tenant: "school-7", User: "teacher-42", Type: "push"}
	offers := []simulate.Offer{{At: eight, Job: job}, {At: eight, Job: job}, {At: eight, Job: job}}

	results, err := simulate.Run(simulate.Config{Policies: policies}, offers)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range results {
		fmt.Println(r.Waited().Round(time.Second))
	}
	// Output:
	// 0s
	// 0s
	// 1m0s
}
