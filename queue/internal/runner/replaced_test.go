package runner

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/policies"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A job takes the place of another one under its collapse key, after the leader has decided about that one, and before
// Redis has done the commit. Rules count it for what it costs itself. One that costs the same starts at once.
func TestAJobIsReplacedOnItsWay(t *testing.T) {
	for name, test := range map[string]struct {
		cost    int
		typ     string // of which type "rare" has a limit of its own
		leading bool   // whether the worker that gets it leads
		waits   time.Duration
	}{
		"by one that costs more":                      {3, "x", true, 10 * time.Second},
		"by one that costs more, elsewhere":           {3, "x", false, 10 * time.Second},
		"by one that costs the same":                  {1, "x", true, 0},
		"by one that costs as much elsewhere":         {1, "x", false, 0},
		"by one that another limit counts":            {1, "rare", true, 10 * time.Second},
		"by one that another limit counts, elsewhere": {1, "rare", false, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 0)
				compiled, err := policies.Compile("q", "default: p\npolicies: {p: {user: {rules: [{window: 3/10s}]}}}\n"+
					"limits: {rare: {jobs: {type: rare}, rules: [{spacing: 10s}]}}\n", 1, 0)
				if err != nil {
					t.Fatal(err)
				}
				s.policies = compiled
				s.handler = func(string, Attempt) Outcome { return Outcome{} }
				producer, err := store.New(s.client, "q")
				if err != nil {
					t.Fatal(err)
				}
				offer := func(payload, key, typ string, cost int) {
					env := envelope.Envelope{CollapseKey: key, Cost: cost, MaxAttempts: 3, Type: typ, Payload: payload}
					lane := envelope.Lane{Tenant: "t", User: "u", Priority: envelope.Normal}
					lane.Label = compiled.Label(lane, &env)
					if _, err := producer.Offer(t.Context(), store.Offer{
						Batch: payload, Keep: time.Minute, Policies: 1, Tenants: []store.OfferTenant{{Name: "t"}},
						Jobs: []store.OfferJob{{Lane: lane, Collapse: key, Body: env.Body()}},
					}); err != nil {
						t.Error(err)
					}
				}
				places := 5
				if !test.leading {
					places = 0
				}
				leader := s.joinWith("w", places)
				if !test.leading {
					time.Sleep(time.Second)
					s.join("other")
				}
				time.Sleep(3 * time.Second)
				offer("first", "", test.typ, 1)
				time.Sleep(time.Second)
				replaced := false
				leader.wire.intercept(func(cmd redis.Cmder, do func() error) error {
					if isCommit(cmd) && !replaced && strings.Contains(fmt.Sprint(cmd.Args()...), "wc:{q}:fold:t:u") {
						replaced = true
						offer("replacement", "k", test.typ, test.cost)
					}
					return do()
				})
				offer("replaced", "k", "x", 1)
				time.Sleep(15 * time.Second)
				s.end()
				if !replaced || len(s.starts) != 2 || s.starts[1].payload != "replacement" {
					t.Fatalf("replaced: %v, %v; want the first job and the replacement", replaced, s.starts)
				}
				waited := s.starts[1].at.Sub(s.starts[0].at)
				if test.waits > 0 && waited < test.waits || test.waits == 0 && waited > 1100*time.Millisecond {
					t.Errorf("the replacement starts %v after the first job, want %v", waited, test.waits)
				}
			})
		})
	}
}
