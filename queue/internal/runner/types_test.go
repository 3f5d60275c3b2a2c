package runner

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// One job whose lane cannot hold it is dead and says why. Those beside it in the commit start,
// and the counters say what is.
func TestALaneThatCannotHoldAJob(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"lane:odd:u", "due:odd", "fold:odd:u"} {
		for _, how := range []string{"reaped", "matured"} {
			t.Run(how+" "+key, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { jobOfABrokenLane(t, key, how) })
			})
		}
	}
}

func jobOfABrokenLane(t *testing.T, key, how string) {
	s := newStage(t, 0)
	s.policies.Policies["p"] = schedule.Policy{}
	s.handler = func(string, Attempt) Outcome { return Outcome{} }
	ctx, now := t.Context(), time.Now().UnixMicro()
	for i, tenant := range []string{"good1", "odd", "good2"} {
		e := envelope.Envelope{Stamp: fmt.Sprintf("%013x", now-1_000_000+int64(i)), Cost: 1, MaxAttempts: 3, Priority: 1, Type: "x", Payload: tenant}
		if strings.HasPrefix(key, "fold") {
			e.CollapseKey = "k"
		}
		lane := envelope.Lane{Tenant: tenant, User: "u", Priority: 1}
		s.offered[tenant] = true
		if how == "reaped" {
			slot := now - 100_000 + int64(i)
			s.client.HSet(ctx, "wc:{q}:running:dead", envelope.Claim{Stamp: e.Stamp, Lane: lane, Slot: slot, Spent: slot}.String(), e.String())
			s.client.HIncrBy(ctx, "wc:{q}:meta", "in", 1)
			s.client.HIncrBy(ctx, "wc:{q}:meta", "started", 1)
		} else {
			s.client.ZAdd(ctx, "wc:{q}:later", redis.Z{Score: float64(now + 5_000_000 + int64(i)), Member: lane.Name() + " " + e.String()})
			s.client.HIncrBy(ctx, "wc:{q}:meta", "other", 1)
		}
	}
	if how == "reaped" {
		s.client.ZAdd(ctx, "wc:{q}:workers", redis.Z{Score: float64(now + 1_000_000), Member: "dead"})
	}
	s.client.HSet(ctx, "wc:{q}:meta", "schema", store.Schema)
	s.client.Set(ctx, "wc:{q}:"+key, "something else", 0)
	w := s.join("w")
	time.Sleep(time.Minute)
	ran := make(map[string]int)
	s.mu.Lock()
	for _, a := range s.starts {
		ran[a.payload]++
	}
	s.mu.Unlock()
	if ran["good1"] != 1 || ran["good2"] != 1 || ran["odd"] != 0 {
		t.Errorf("started: %v", ran)
	}
	dead := s.client.XRange(ctx, "wc:{q}:dead", "-", "+").Val()
	if len(dead) != 1 || dead[0].Values["lane"] != "odd:u:1" || dead[0].Values["error"] != laneBroken {
		t.Errorf("dead: %v", dead)
	}
	totals, err := w.Runner.worker.Store.Totals(ctx)
	if err != nil || totals.Waiting != 0 || totals.Later != 0 || totals.Running != 0 {
		t.Errorf("%+v, %v", totals, err)
	}
	s.end()
}

// A key of the queue that has another type stops the queue: the leader says so once, with the
// key and the remedy. When it is repaired everything goes on, and nothing is lost.
func TestAKeyOfTheQueueThatHasAnotherType(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"tenants", "later", "notices", "workers", "meta", "dead"} {
		t.Run(key, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 0)
				s.policies.Policies["p"] = schedule.Policy{}
				s.handler = func(string, Attempt) Outcome { return Outcome{} }
				var says bytes.Buffer
				var mu sync.Mutex
				s.log = slog.New(slog.NewTextHandler(locked{&mu, &says}, nil))
				w := s.join("w")
				time.Sleep(3 * time.Second)
				s.offer("u", 1)
				time.Sleep(time.Second)
				kept := "wc:{q}:kept"
				existed := s.client.Exists(t.Context(), "wc:{q}:"+key).Val() == 1
				if existed {
					s.client.Rename(t.Context(), "wc:{q}:"+key, kept)
				}
				s.client.Set(t.Context(), "wc:{q}:"+key, "x", 0)
				time.Sleep(10 * time.Second)
				if err := w.Runner.worker.Store.CheckTypes(t.Context()); err == nil {
					t.Error("it is sound")
				}
				mu.Lock()
				text := says.String()
				mu.Unlock()
				if n := strings.Count(text, "the key wc:{q}:"+key+" in Redis is not a"); n == 0 || n > 12 || !strings.Contains(text, "doctor --repair") {
					t.Errorf("it is said %d times: %s", n, text)
				}
				s.client.Del(t.Context(), "wc:{q}:"+key)
				if existed {
					s.client.Rename(t.Context(), kept, "wc:{q}:"+key)
				}
				time.Sleep(5 * time.Second)
				s.offer("u", 1)
				time.Sleep(5 * time.Second)
				if n := s.attempts(); n != 2 {
					t.Errorf("%d of 2 jobs started", n)
				}
				s.end()
			})
		})
	}
}

type locked struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (l locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// A job under a collapse key that is to be dropped is replaced in the same moment: its lane is
// left out of the commit that is sent again, and the newer one starts.
func TestADropOfAJobThatIsReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.policies.Policies["p"] = schedule.Policy{}
		s.handler = func(string, Attempt) Outcome { return Outcome{} }
		ctx := t.Context()
		w := s.join("w")
		time.Sleep(3 * time.Second)
		st, _ := store.New(s.client, "q")
		offer := func(batch string, e envelope.Envelope) {
			e.Cost, e.MaxAttempts, e.Priority, e.Type, e.CollapseKey = 1, 3, 1, "x", "k"
			s.offered[e.Payload] = true
			_, err := st.Offer(ctx, store.Offer{Batch: batch, Keep: time.Minute, Policies: 1, Tenants: []store.OfferTenant{{Name: "t"}}, Jobs: []store.OfferJob{{
				Lane: envelope.Lane{Tenant: "t", User: "u", Priority: 1}, Body: e.Body(), Collapse: "k",
			}}})
			if err != nil {
				t.Error(err)
			}
		}
		var drops atomic.Int32
		w.wire.intercept(func(cmd redis.Cmder, do func() error) error {
			if isCommit(cmd) && slices.Contains(cmd.Args(), any("expired")) && drops.Add(1) == 1 {
				offer("newer", envelope.Envelope{Payload: "newer"})
			}
			return do()
		})
		offer("older", envelope.Envelope{Payload: "older", Deadline: time.Now().UnixMicro() - 1})
		time.Sleep(time.Minute)
		s.mu.Lock()
		starts := s.starts
		s.mu.Unlock()
		if n := drops.Load(); n != 1 || len(starts) != 1 || starts[0].payload != "newer" {
			t.Errorf("dropped in %d commits, started %v", n, starts)
		}
		s.end()
	})
}

// A job under a collapse key is replaced in the moment in which it is claimed: the newer one runs,
// and its ID says so.
func TestTheIDOfAJobThatReplacesAClaimedOne(t *testing.T) {
	t.Parallel()
	for _, hired := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, 0)
			s.policies.Policies["p"] = schedule.Policy{}
			s.handler = func(string, Attempt) Outcome { return Outcome{} }
			ctx := t.Context()
			s.join("w")
			time.Sleep(3 * time.Second) // it leads
			if hired {
				s.join("x")
				time.Sleep(3 * time.Second)
			}
			st, _ := store.New(s.client, "q")
			offer := func(id string) {
				e := envelope.Envelope{ID: id, Cost: 1, MaxAttempts: 3, Priority: 1, Type: "x", CollapseKey: "k", Payload: id}
				s.offered[id] = true
				_, err := st.Offer(ctx, store.Offer{Batch: id, Keep: time.Minute, Policies: 1, Tenants: []store.OfferTenant{{Name: "t"}}, Jobs: []store.OfferJob{{
					Lane: envelope.Lane{Tenant: "t", User: "u", Priority: 1}, Body: e.Body(), Collapse: "k", ID: id, IDFor: time.Hour,
				}}})
				if err != nil {
					t.Error(err)
				}
			}
			var claims atomic.Int32
			claimed := func(cmd redis.Cmder) bool {
				return slices.ContainsFunc(cmd.Args(), func(arg any) bool {
					claim, _ := arg.(string)
					return strings.Contains(claim, " t:u:1")
				})
			}
			for _, a := range s.workers {
				a.wire.intercept(func(cmd redis.Cmder, do func() error) error {
					if isCommit(cmd) && claimed(cmd) && claims.Add(1) == 1 {
						offer("newer")
					}
					return do()
				})
			}
			offer("older")
			time.Sleep(10 * time.Second)
			older, _ := st.Where(ctx, "older")
			newer, _ := st.Where(ctx, "newer")
			if claims.Load() == 0 || s.attempts() != 1 || newer != store.WasStarted || older == store.WasStarted {
				t.Errorf("hired %v, %d commits, %d starts; older %q, newer %q", hired, claims.Load(), s.attempts(), older, newer)
			}
			s.end()
		})
	}
}
