package main

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
)

// The console lists limits by name, and the keys of one.
func TestLimitsShow(t *testing.T) {
	c := openTerminal(t)
	c.prints(words("limits show"), "The policies have no limits by name.")
	c.fails(2, "there is no limit domain: the policies have no limits by name", "limits", "show", "domain")
	c.prints([]string{"policies", "apply", c.file("p.yaml", `
limits:
  domain: {key: keys.domain, rules: [{window: 2/1h}], concurrency: 10}
  marketing: {jobs: {type: marketing}, key: [tenant, user], rules: [{window: 1/24h}]}
`), "--yes"})
	started := make(chan string, 100)
	stop := c.work(4, func(_ context.Context, task *asynq.Task) error {
		started <- task.Type()
		return nil
	})
	defer stop()
	c.prints(words("pause --limit domain down.example --for 10m"), "is paused until")
	for i := range 5 {
		c.offer(queue.Job{Tenant: "shop", User: fmt.Sprint("u", i), Type: "mail", Keys: map[string]string{"domain": "a\x1b.example"}})
	}
	redistest.Eventually(t, 10*time.Second, "two have started", func() bool { return len(started) == 2 })
	c.prints(words("limits show"), "LIMIT      RULES                        KEY           WAITING  LANES  RUNNING  PAUSED  FULLEST",
		"domain     window 2/1h, concurrency 10  keys.domain   3        3      0        1       100 % a\\x1b.example", "marketing  window 1/24h", "tenant, user  0")
	c.prints(words("limits show domain"), "a\\x1b.example  100 %  3        3      0        in ", "down.example   0 %    0        0      0        paused, goes on in ")
	c.prints(words("limits show domain -n 1"), "and 1 key more")
	var all queue.LimitsNow
	if out := c.prints(words("limits show domain --json")); json.Unmarshal([]byte(out), &all) != nil || len(all.Limits) != 1 || all.Limits[0].Keys[0].Full != 1 {
		t.Error(out)
	}
	c.fails(2, "there is no limit domian; there are domain, marketing", "limits", "show", "domian")
	c.fails(2, "-n 0: want at least 1", words("limits show -n 0")...)
}
