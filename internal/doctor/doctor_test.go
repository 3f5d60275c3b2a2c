package doctor

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
)

// find returns what was found of a thing.
func find(t *testing.T, all []Finding, what string) Finding {
	t.Helper()
	for _, f := range all {
		if strings.HasPrefix(f.What, what) {
			return f
		}
	}
	t.Fatalf("nothing is said of %s: %+v", what, all)
	return Finding{}
}

// A replica is told with how far it is behind; one that is far behind, or silent, is a problem.
func TestReplicas(t *testing.T) {
	t.Parallel()
	info := map[string]string{
		"master_repl_offset": "20000000",
		"slave0":             "ip=10.0.0.1,port=6379,state=online,offset=19999990,lag=1",
		"slave1":             "ip=10.0.0.2,port=6379,state=online,offset=1000,lag=1",
		"slave2":             "ip=10.0.0.3,port=6379,state=online,offset=20000000,lag=60",
		"slave3":             "ip=10.0.0.4,port=6379,state=wait_bgsave,offset=0,lag=0",
	}
	all := replicas(info)
	if len(all) != 4 || all[0].What != "replica 10.0.0.1:6379" || all[0].Seen != "online, 10 bytes behind, last heard of 1 s ago" || all[0].Problem != "" {
		t.Errorf("%+v", all)
	}
	for _, f := range all[1:] {
		if f.Problem == "" {
			t.Errorf("no problem: %+v", f)
		}
	}
}

func TestScripts(t *testing.T) {
	t.Parallel()
	for stats, want := range map[string]struct {
		seen    string
		problem bool
	}{
		"": {"none has run", false},
		"calls=1000,usec=40000,usec_per_call=40.00,rejected_calls=0": {"1000 have run, for 40µs each", false},
		"calls=10,usec=50000,usec_per_call=5000.00":                  {"10 have run, for 5ms each", true},
	} {
		if f := scripts(map[string]string{"cmdstat_evalsha": stats}); f.Seen != want.seen || (f.Problem != "") != want.problem {
			t.Errorf("%q: %+v", stats, f)
		}
	}
}

// On a real server everything is found, and what is wrong has a remedy.
func TestRealRedis(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	if err := redis.NewScript("return 1").Run(t.Context(), client, nil).Err(); err != nil {
		t.Fatal(err)
	}
	client.EvalSha(t.Context(), client.ScriptLoad(t.Context(), "return 2").Val(), nil)
	client.ZAdd(t.Context(), "asynq:{push}:archived", redis.Z{Score: 1, Member: "task"})
	all := append(Redis(t.Context(), client), Inbox(t.Context(), client, "push"), Inbox(t.Context(), client, "other"))
	if f := find(t, all, "persistence"); !strings.Contains(f.Problem, "appendonly") {
		t.Errorf("%+v", f)
	}
	if f := find(t, all, "scripts"); !strings.Contains(f.Seen, "have run") {
		t.Errorf("%+v", f)
	}
	if f := find(t, all, "inbox"); f.Seen != "archived tasks: 1" || f.Problem == "" {
		t.Errorf("%+v", f)
	}
	if f := all[len(all)-1]; f.Problem != "" {
		t.Errorf("%+v", f)
	}
}
