package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
)

// Limits by name at the console: what a job waits for, and a key of one that is paused.
func TestLimitsAtTheConsole(t *testing.T) {
	t.Parallel()
	c := openTerminal(t)
	c.prints([]string{"policies", "apply", c.file("p.yaml", `
limits:
  domain: {key: keys.domain, rules: [{leak: 10/s}]}
  marketing: {jobs: {type: marketing}, key: [tenant, user], rules: [{window: 1/24h}]}
`), "--yes"})
	started := make(chan string, 100)
	stop := c.work(4, func(_ context.Context, task *asynq.Task) error {
		started <- task.Type()
		return nil
	})
	defer stop()
	c.prints(words("pause --limit domain down.example --for 10m"), "The limit domain down.example is paused until")
	c.prints(words("pauses"), "limit", "domain", "down.example", "ann")
	mail := func(id, domain, typ string) queue.Job {
		return queue.Job{ID: id, Tenant: "shop", User: "u", Type: typ, Keys: map[string]string{"domain": domain}}
	}
	c.offer(mail("1", "up.example", "marketing"), mail("2", "up.example", "marketing"), mail("3", "down.example", "held"), mail("4", "up.example", "free"))
	redistest.Eventually(t, 10*time.Second, "what may start has", func() bool { return len(started) == 2 })
	c.prints(words("why --job 2"), "window 1/24h", "marketing")
	c.prints(words("why --job 3"), "paused")
	c.prints(words("why shop u"), "paused", "domain")
	c.prints(words("resume --limit domain down.example"), "The limit domain down.example is not paused any more.")
	redistest.Eventually(t, 10*time.Second, "it has started", func() bool { return len(started) == 3 })
	c.prints(words("resume --limit domain down.example"), "was not paused")
	c.fails(2, "there is no limit domian; there are domain, marketing", strings.Fields("pause --limit domian x --for 10m")...)
	c.fails(2, "limit marketing has the key [tenant, user]: want 2 values, not 1", strings.Fields("pause --limit marketing shop --for 10m")...)
	c.fails(2, "pause: 3 names; want a tenant, or a tenant and a user", strings.Fields("pause a b c --for 10m")...)
	c.prints(words("pause --limit domain down.example --for 10m"), "is paused until")
	c.prints([]string{"policies", "apply", c.file("none.yaml", "policies: {}\n"), "--yes"})
	c.prints(words("resume --limit domain down.example"), "The limit domain down.example is not paused any more.")
	c.fails(2, "there is no limit domain: the policies have no limits by name", strings.Fields("resume --limit domain down.example")...)
}
