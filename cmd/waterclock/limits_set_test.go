package main

import (
	"strings"
	"testing"
)

// Overrides at the console: set, listed with author and reason, kept by an apply, in the history, ended.
func TestOverridesAtTheConsole(t *testing.T) {
	t.Parallel()
	c := openTerminal(t)
	c.prints([]string{"policies", "apply", c.file("p.yaml", `
limits:
  domain: {key: keys.domain, rules: [{leak: 10/s}]}
  marketing: {jobs: {type: marketing}, key: [tenant, user], rules: [{window: 1/24h}]}
`), "--yes"})
	c.prints([]string{"limits", "set", "domain", "gmail.com", "leak 5/s", "--for", "2h", "--reason", "they ask us to"}, "domain gmail.com: leak 5/s until")
	c.prints([]string{"limits", "set", "tenant", "school-1", "token_bucket 10/1m burst 20", "--concurrency", "25%", "--capacity", "500", "--for", "1h"},
		"tenant school-1: token_bucket 10/1m burst 20, concurrency 25%, capacity 500 until", "No job of tenant school-1 is known.")
	c.prints([]string{"limits", "set", "user", "school-1", "teacher-42", "window 10/1m over=drop", "spacing 3s", "--for", "3h"},
		"user school-1,teacher-42: window 10/1m over=drop, spacing 3s until")
	c.prints([]string{"limits", "set", "marketing", "shop", "ann", "window 5/24h", "--for", "3h"}, "marketing shop,ann: window 5/24h until")
	c.prints([]string{"limits", "set", "queue", "leak 100/s", "--for", "3h"}, "queue: leak 100/s until")
	c.prints(words("limits list"), "domain gmail.com: leak 5/s", "in 2h", "ann", "they ask us to")
	c.prints(words("policies get"), "# 5 overrides count beside these for a time: see limits list")
	c.prints([]string{"policies", "apply", c.file("q.yaml", "limits:\n  domain: {key: keys.domain, rules: [{leak: 20/s}]}\n"), "--yes"})
	c.prints(words("limits list"), "domain gmail.com: leak 5/s")
	c.prints([]string{"limits", "unset", "domain", "gmail.com", "--reason", "they are well"}, "domain gmail.com: the rules of the policies count again.")
	c.prints(words("limits list --all"), "domain gmail.com: leak 5/s", ", before its time", "queue: leak 100/s")
	c.prints(words("limits list --all --json"), `"limit": "domain"`, `"rules": [`, `"ended": "`)
	c.prints(words("policies history"), "they are well", "-     domain gmail.com: leak 5/s until", "they ask us to", "+     domain gmail.com: leak 5/s until")
	c.fails(1, "nothing is set for domain gmail.com", strings.Fields("limits unset domain gmail.com")...)
	c.fails(2, "there is no limit domian; there are domain", "limits", "set", "domian", "x", "leak 5/s", "--for", "1h")
	c.fails(2, "want 1 value of limit domain, then rules", "limits", "set", "domain", "--for", "1h")
	c.fails(2, "want rules such as 'leak 5/s' behind the 2 values of limit user", "limits", "set", "user", "school-1", "leak 5/s", "--for", "1h")
	c.fails(2, `"laek 5/s": unknown kind "laek"`, "limits", "set", "domain", "x", "laek 5/s", "--for", "1h")
	c.fails(2, "limits set: until when?", "limits", "set", "domain", "x", "leak 5/s")
	c.fails(2, "--concurrency \"many\"", "limits", "set", "domain", "x", "--concurrency", "many", "--for", "1h")
}
