package main

import "testing"

// What the command is called with that means nothing is refused, and the error says what would
// be right.
func TestCalledTheWrongWay(t *testing.T) {
	t.Parallel()
	c := openTerminal(t)
	for _, test := range []struct {
		want string
		args []string
	}{
		{`pause: argument 1 is empty; want nothing for the queue, a tenant, or a tenant and a user`, []string{"pause", "", "--for", "1m"}},
		{`pause: argument 2 is empty`, []string{"pause", "school", "", "--for", "1m"}},
		{`resume: argument 1 is empty`, []string{"resume", ""}},
		{`purge: argument 1 is empty; want a tenant`, []string{"purge", "", "--yes"}},
		{`lane: argument 2 is empty`, []string{"lane", "school", ""}},
		{`why: argument 1 is empty`, []string{"why", ""}},
		{`cancel: argument 2 is empty`, []string{"cancel", "order-17", ""}},
		{`--number "x": want a whole number`, words("drops -n x")},
		{`--for "10 minutes": want a time such as 10m`, []string{"pause", "school", "--for", "10 minutes"}},
		{`--max-overdue "5": want a time such as 10m`, words("check --max-overdue 5")},
		{`--reason "fulll": want full, rule, expired, collapsed, impossible, cancelled, purged, duplicate or broken`, words("drops --reason fulll")},
		{`--only "failed,droped": want some of claimed, started, done, failed, paused, dropped, separated by commas`, words("tail --only failed,droped")},
	} {
		c.fails(2, test.want, test.args...)
	}
	c.prints(words("pauses"), "SCOPE")
	if keys := c.client.Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("keys in Redis: %q", keys)
	}
}
