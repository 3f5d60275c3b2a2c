package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
)

// "Customer X's jobs are late": one command says since when, how long it takes and which rule makes it so, and another one what
// a single job waits for. "Why was yesterday's job late?": one command.
func TestDrillOfLateJobs(t *testing.T) {
	t.Parallel()
	c := openTerminal(t)
	c.prints([]string{"policies", "apply", c.file("p.yaml", `
default: standard
policies:
  standard: {tenant: {rules: [{leak: 50/s}], concurrency: 25%}, user: {rules: [{window: 10/1m}, {spacing: 20ms}]}}
`), "--yes"})
	var late []queue.Job
	for i := range 210 {
		late = append(late, queue.Job{ID: fmt.Sprint("inv-", i), Tenant: "cust-033", User: "ep-main", Type: "hook"})
	}
	c.offer(late...)
	for i := range 20 {
		c.offer(queue.Job{Tenant: "cust-033", User: fmt.Sprint("ep-", i), Type: "hook"})
	}
	stop := c.work(8, func(context.Context, *asynq.Task) error { return nil })
	defer stop()
	last := "The last one starts in 20m at the earliest: 200 jobs of ep-main wait for their rule window 10/1m."
	redistest.Eventually(t, 10*time.Second, "those that may have started and ended, and the leader has looked at the next", func() bool {
		out := c.prints(words("why cust-033"))
		return strings.Contains(out, last) && strings.Contains(out, "it waits for the user's rule window 10/1m")
	})
	c.prints(words("why cust-033"), "the oldest for ", "200 jobs of cust-033", "◀ binds")
	if out := c.prints(words("why cust-033 --json")); !strings.Contains(out, `"drains_ns": 1200000000000`) || !strings.Contains(out, `"user": "ep-main"`) {
		t.Error(out)
	}
	c.prints(words("why --job inv-109"), "at place 100 of its lane", "It starts in ")
	redistest.Eventually(t, 10*time.Second, "the end of the last that started is noted", func() bool {
		return strings.Contains(c.prints(words("why --job inv-9")), "Job inv-9 is done. It was offered at ")
	})
	c.prints(words("why --job inv-9"), "ATTEMPT  STARTED", "for rules", "done after")
	c.prints(words("why nobody"), "Nothing of tenant nobody waits.")
	c.prints(words("pause cust-033 --for 30m"), "is paused until")
	c.prints(words("why cust-033"), "The last one starts in ", "m at the earliest")
}
