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
// Redis has done the commit. Rules count it for what it costs itself, and get back what they have counted of the other. One that
// costs the same starts at once. Nobody else waits: the worker gets the next job as before.
func TestAJobIsReplacedOnItsWay(t *testing.T) {
	const window, bucket = "{window: 3/10s}", "{token_bucket: 1/10s, burst: 3}"
	for name, test := range map[string]struct {
		cost    int
		typ     string // of which type "rare" has a limit of its own
		rule    string // of the user
		leading bool   // whether the worker that gets it leads
		waits   time.Duration
	}{
		"by one that costs more":                        {3, "x", window, true, 10 * time.Second},
		"by one that costs more, elsewhere":             {3, "x", window, false, 10 * time.Second},
		"by one that costs the same":                    {1, "x", window, true, 0},
		"by one that costs as much elsewhere":           {1, "x", window, false, 0},
		"by one that another limit counts":              {1, "rare", window, true, 10 * time.Second},
		"by one that another limit counts, elsewhere":   {1, "rare", window, false, 10 * time.Second},
		"by one that costs more of a bucket":            {3, "x", bucket, true, 10 * time.Second},
		"by one that costs more of a bucket, elsewhere": {3, "x", bucket, false, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 0)
				compiled, err := policies.Compile("q", "default: p\npolicies: {p: {user: {rules: ["+test.rule+"]}}}\n"+
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
				offerTo := func(user, payload, key, typ string, cost int) {
					env := envelope.Envelope{CollapseKey: key, Cost: cost, MaxAttempts: 3, Type: typ, Payload: payload}
					lane := envelope.Lane{Tenant: "t", User: user, Priority: envelope.Normal}
					lane.Label = compiled.Label(lane, &env)
					if _, err := producer.Offer(t.Context(), store.Offer{
						Batch: payload, Keep: time.Minute, Policies: 1, Tenants: []store.OfferTenant{{Name: "t"}},
						Jobs: []store.OfferJob{{Lane: lane, Collapse: key, Body: env.Body()}},
					}); err != nil {
						t.Error(err)
					}
				}
				offer := func(payload, key, typ string, cost int) { offerTo("u", payload, key, typ, cost) }
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
				time.Sleep(10 * time.Millisecond)
				offered := time.Now()
				offerTo("bystander", "bystander", "", "x", 1)
				time.Sleep(15 * time.Second)
				s.end()
				starts := make(map[string]time.Time)
				for _, at := range s.starts {
					starts[at.payload] = at.at
				}
				if !replaced || len(s.starts) != 3 || starts["replacement"].IsZero() {
					t.Fatalf("replaced: %v, %v; want the first job, the replacement, and another one", replaced, s.starts)
				}
				if waited := starts["bystander"].Sub(offered); waited > 20*time.Millisecond {
					t.Errorf("another user's job waits for %v", waited)
				}
				waited := starts["replacement"].Sub(starts["first"])
				if test.waits > 0 && waited < test.waits || test.waits == 0 && waited > 1100*time.Millisecond {
					t.Errorf("the replacement starts %v after the first job, want %v", waited, test.waits)
				}
			})
		})
	}
}
