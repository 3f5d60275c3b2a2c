package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
)

// The console lists limits by name, and the keys of one.
func TestLimitsShow(t *testing.T) {
	t.Parallel()
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
	inspector, err := queue.NewInspector(c.client, "push")
	if err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, 10*time.Second, "two have started, and Redis knows that they have ended", func() bool {
		s, err := inspector.Stats(t.Context())
		return err == nil && len(started) == 2 && s.Done == 2
	})
	c.prints(words("limits show"), "LIMIT      RULES                        KEY           WAITING  LANES  RUNNING  PAUSED  OVERRIDES  FULLEST",
		"domain     window 2/1h, concurrency 10  keys.domain   3        3      0        1       0          100 % a\\x1b.example", "marketing  window 1/24h", "tenant, user  0")
	c.prints(words("limits show domain"), "a\\x1b.example  100 %  3        3      0        in ", "down.example   0 %    0        0      0        paused, goes on in ")
	c.prints(words("limits show domain -n 1"), "and 1 key more")
	var all queue.LimitsNow
	if out := c.prints(words("limits show domain --json")); json.Unmarshal([]byte(out), &all) != nil || len(all.Limits) != 1 || all.Limits[0].Keys[0].Full != 1 {
		t.Error(out)
	}
	c.fails(2, "there is no limit domian; there are domain, marketing", "limits", "show", "domian")
	c.fails(2, "-n 0: want at least 1", words("limits show -n 0")...)
}

// Overrides are shown with the keys that they count for, and one key with all that counts for it.
func TestLimitsShowOneKey(t *testing.T) {
	t.Parallel()
	c := openTerminal(t)
	c.prints([]string{"policies", "apply", c.file("p.yaml", `
limits:
  domain: {key: keys.domain, rules: [{leak: 10/s}], each: {free.example: unlimited}}
  marketing: {key: [tenant, user], rules: [{window: 1/24h}], capacity: 1000}
`), "--yes"})
	c.prints([]string{"limits", "set", "domain", "gmail.com", "leak 5/s", "--for", "2h", "--reason", "421 from all"}, "leak 5/s until")
	c.prints(words("limits show domain"), "KEY        FULL  WAITING  LANES  RUNNING  NEXT START  OVERRIDE", "gmail.com  0 %   0        0      0        now         until ", ", in ", "ann: 421 from all)")
	c.prints(words("limits show"), "PAUSED  OVERRIDES  FULLEST", "0       1          -")
	c.prints(words("limits show domain gmail.com"), "gmail.com of limit domain: 0 % full, 0 jobs wait in 0 lanes, 0 running. Next start: now.", "An override counts until ", "leak 5/s", "1 of 1 left", "override until ")
	if out := c.prints(words("limits show domain other.example"), "leak 10/s"); strings.Contains(out, "override") {
		t.Error(out)
	}
	c.prints(words("limits show domain free.example"), "Nothing limits free.example of limit domain.")
	c.prints([]string{"pause", "--limit", "marketing", "shop", "a,b", "--for", "10m", "--reason", "they complain"}, "is paused until")
	c.prints([]string{"limits", "show", "marketing", "shop", "a,b"}, "shop,a%2Cb of limit marketing", "paused, goes on in ", "It is paused until ", "ann: they complain", "capacity 1,000", "window 1/24h")
	var key queue.LimitKey
	if out := c.prints(words("limits show domain gmail.com --json")); json.Unmarshal([]byte(out), &key) != nil || key.Reason != "421 from all" || key.Until.IsZero() {
		t.Error(out)
	}
	c.fails(2, "limit marketing has the key [tenant, user]: want 2 values, not 1", words("limits show marketing shop")...)
	c.fails(2, "there is no limit domian; there are domain, marketing", words("limits show domian gmail.com")...)
}
