package store

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/waterclock/waterclock/internal/redistest"
)

var commandLine = regexp.MustCompile(`cmdstat_(\w+):calls=(\d+)`)

// What a commit costs Redis: lanes of which nothing is left go with one command, and what is told
// about rules is written with the commit's number.
func TestWhatACommitCosts(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	s, err := New(client, "q")
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{Store: s, t: t, client: client, read: "0"}
	c := d.NewCommit()
	for i, user := range []string{"u0", "u1", "u2"} {
		d.take(c, "b", user, d.offer(user, nil), int64(5+i))
	}
	d.take(c, "b", "v", d.offer("v", nil), 9)
	d.offer("v", id("second"))
	c.Blame("leak 1/1s", 5)
	c.Blame("window 1/1s", 7)
	c.Object("spacing 1s")
	f := d.lead("a")
	d.must(client.ConfigResetStat(t.Context()).Err())
	reply, err := d.Commit(t.Context(), f, c)
	d.must(err)
	calls := map[string]int{}
	for _, m := range commandLine.FindAllStringSubmatch(client.Info(t.Context(), "commandstats").Val(), -1) {
		calls[m[1]], _ = strconv.Atoi(m[2])
	}
	want := map[string]int{"evalsha": 1, "hmget": 1, "time": 1, "lrange": 4, "hset": 2, "ltrim": 1, "del": 1, "hincrby": 1, "zrem": 3}
	for command, n := range want {
		if calls[command] > n {
			t.Errorf("%d × %s, want %d", calls[command], command, n)
		}
	}
	if len(reply.Errors) > 0 || len(d.claimed("b")) != 4 || d.lane("v") != "second" || d.exists("lane:t:u1") {
		t.Errorf("%+v, claims %v, lane %q", reply, d.claimed("b"), d.lane("v"))
	}
	totals, err := d.Totals(t.Context())
	d.must(err)
	if totals.Blocked["leak 1/1s"] != 5 || totals.Blocked["window 1/1s"] != 7 || totals.Shadowed["spacing 1s"] != 1 || len(totals.Blocked) != 2 {
		t.Errorf("%+v", totals)
	}
}
