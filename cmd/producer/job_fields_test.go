package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// A start is what a handler saw of a job.
type start struct {
	queue.Info
	payload string
	limit   time.Duration // from the start to the end of its context; 0 for none
}

// A journal is a handler that notes all starts. What is called so fails, or waits for the
// end of its context.
type journal struct {
	mu     sync.Mutex
	starts map[string][]start
}

func (j *journal) ProcessTask(ctx context.Context, t *asynq.Task) error {
	info, _ := queue.FromContext(ctx)
	seen := start{Info: info, payload: string(t.Payload())}
	if end, ok := ctx.Deadline(); ok {
		seen.limit = time.Until(end)
	}
	j.mu.Lock()
	j.starts[info.ID] = append(j.starts[info.ID], seen)
	j.mu.Unlock()
	switch {
	case strings.HasPrefix(info.ID, "fails"):
		return errors.New("no")
	case strings.HasPrefix(info.ID, "slow"):
		<-ctx.Done()
	}
	return nil
}

// one returns the only start of a job.
func (j *journal) one(t *testing.T, id string) start {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.starts[id]) != 1 {
		t.Fatalf("%d starts of %s, want 1", len(j.starts[id]), id)
	}
	return j.starts[id][0]
}

func (j *journal) attempts(id string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.starts[id])
}

// Every field of a line has its effect in the worker, through either door.
func TestEveryFieldHasItsEffect(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	for _, way := range []string{"lanes", "asynq"} {
		t.Run(way, func(t *testing.T) {
			server := redistest.Start(t)
			client := server.Client(t)
			inspector := newInspector(t, client, "push")
			err := inspector.SetPolicies(t.Context(), queue.Policies{Default: "p", Policies: map[string]queue.Policy{"p": {
				Tenant: []throttle.Rule{throttle.Leak(100, time.Second)}, User: []throttle.Rule{throttle.Window(2, 300*time.Millisecond)},
			}}, Limits: map[string]queue.Limit{
				"domain": {Key: []string{"keys.domain"}, Counts: "tokens", Rules: []throttle.Rule{throttle.Window(5, 400*time.Millisecond)}},
			}})
			if err == nil {
				err = inspector.Pause(t.Context(), queue.Pause{Scope: queue.ScopeQueue, Until: time.Now().Add(time.Hour)}) // until all is offered
			}
			if err != nil {
				t.Fatal(err)
			}
			seen := &journal{starts: map[string][]start{}}
			runWorker(t, client, seen)
			notBefore := time.Now().Add(1500 * time.Millisecond)
			status, _, stderr := produce(t, strings.NewReader(featureLines(notBefore)), "--redis", server.URL(), "--via", way)
			if status != 0 || stderr != "" {
				t.Fatalf("status %d: %s", status, stderr)
			}
			// All but the duplicate; asynq brings what is not due yet when it is.
			waits := map[string]int64{"lanes": 18, "asynq": 17}[way]
			counted := func(enough func(queue.Stats) bool) func() bool {
				return func() bool {
					s, err := inspector.Stats(t.Context())
					return err == nil && enough(s)
				}
			}
			redistest.Eventually(t, 20*time.Second, "all is offered", counted(func(s queue.Stats) bool { return s.Offered >= waits }))
			if err := inspector.Resume(t.Context(), queue.Pause{Scope: queue.ScopeQueue}); err != nil {
				t.Fatal(err)
			}
			redistest.Eventually(t, 20*time.Second, "all has ended", counted(func(s queue.Stats) bool {
				return s.Offered == 18 && s.Waiting+s.Later+s.Running == 0
			}))
			checkEffects(t, seen, notBefore)
			checkDrops(t, inspector, seen, way == "lanes")
			checkDead(t, inspector)
		})
	}
}

func featureLines(notBefore time.Time) string {
	lines := []string{
		`"user":"a","id":"plain","payload":{"n": 1.0}`,
		`"user":"a","id":"plain"`,
		`"user":"b","id":"costly","cost":2`,
		`"user":"b","id":"after"`,
		`"user":"c","id":"later","not_before":"` + notBefore.Format(time.RFC3339Nano) + `"`,
		`"user":"d","id":"missed","deadline":"2020-01-01T00:00:00Z"`,
		`"user":"e","id":"in time","deadline":"2100-01-01T00:00:00Z","finish_by":"2100-01-01T00:00:00Z"`,
		`"user":"f","id":"low","priority":"low"`,
		`"user":"g","id":"normal","priority":"normal"`,
		`"user":"h","id":"high","priority":"high"`,
		`"user":"i","id":"old","collapse_key":"k"`,
		`"user":"i","id":"new","collapse_key":"k"`,
		`"user":"j","id":"fails twice","max_retry":1`,
		`"user":"k","id":"fails once","max_retry":0`,
		`"user":"l","id":"slow","timeout":"200ms"`,
		`"user":"m","id":"mail 1","keys":{"domain":"a.example"},"costs":{"tokens":3}`,
		`"user":"n","id":"mail 2","keys":{"domain":"a.example"},"costs":{"tokens":3}`,
		`"user":"o","id":"mail 3","keys":{"domain":"b.example"},"costs":{"tokens":5}`,
		`"user":"p","id":"mail 4","keys":{"domain":"a.example"},"costs":{"tokens":0}`,
	}
	text := ""
	for _, line := range lines {
		text += fmt.Sprintf("{\"tenant\":\"t\",\"type\":\"push\",%s}\n", line)
	}
	return text
}

func runWorker(t *testing.T, client redis.UniversalClient, h asynq.Handler) {
	t.Helper()
	worker, err := queue.NewWorker(client, queue.WorkerConfig{
		Queues: []string{"push"}, Inbox: true, RetryDelay: func(int, error, *asynq.Task) time.Duration { return time.Millisecond },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx, h) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func checkEffects(t *testing.T, seen *journal, notBefore time.Time) {
	t.Helper()
	if plain := seen.one(t, "plain"); plain.payload != `{"n": 1.0}` || plain.Tenant != "t" || plain.User != "a" ||
		plain.Type != "push" || plain.MaxAttempts != 26 || plain.limit != 0 {
		t.Errorf("plain: %+v", plain)
	}
	if gap := seen.one(t, "after").Slot.Sub(seen.one(t, "costly").Slot).Abs(); gap < 300*time.Millisecond {
		t.Errorf("cost: the next one comes %v after two of two", gap)
	}
	mail := seen.one(t, "mail 1")
	if gap := seen.one(t, "mail 2").Slot.Sub(mail.Slot).Abs(); gap < 400*time.Millisecond || mail.Keys["domain"] != "a.example" || mail.Costs["tokens"] != 3 {
		t.Errorf("keys and costs: %+v; the next one to the same domain comes %v after", mail, gap)
	}
	if other := seen.one(t, "mail 3"); other.Keys["domain"] != "b.example" || other.Costs["tokens"] != 5 {
		t.Errorf("keys and costs: %+v", other)
	}
	if n, has := seen.one(t, "mail 4").Costs["tokens"]; n != 0 || !has {
		t.Errorf("costs: %d, %v; want 0 that was said", n, has)
	}
	if late := seen.one(t, "later"); late.Started.Before(notBefore) {
		t.Errorf("not_before: started %v before", notBefore.Sub(late.Started))
	}
	if end := seen.one(t, "in time").limit; end < 24*time.Hour {
		t.Errorf("deadline: the context ends in %v, want in 2100", end)
	}
	high, normal, low := seen.one(t, "high"), seen.one(t, "normal"), seen.one(t, "low")
	if !high.Slot.Before(normal.Slot) || !normal.Slot.Before(low.Slot) {
		t.Errorf("priority: high at %v, normal at %v, low at %v", high.Slot, normal.Slot, low.Slot)
	}
	if n, m := seen.attempts("fails twice"), seen.attempts("fails once"); n != 2 || m != 1 {
		t.Errorf("max_retry: %d attempts with 1 more, %d with none", n, m)
	}
	if limit := seen.one(t, "slow").limit; limit <= 0 || limit > 200*time.Millisecond {
		t.Errorf("timeout: the context ends in %v, want within 200ms", limit)
	}
}

// checkDrops checks what must not start. Of the two with one collapse key only one does:
// the newer, but the inbox may turn two around that come at once.
func checkDrops(t *testing.T, inspector *queue.Inspector, seen *journal, inOrder bool) {
	t.Helper()
	drops, err := inspector.Drops(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]queue.Reason{}
	for _, d := range drops {
		reasons[d.ID] = d.Reason
		if seen.attempts(d.ID) > 0 {
			t.Errorf("%s was dropped as %s and started", d.ID, d.Reason)
		}
	}
	collapsed := reasons["old"]
	if collapsed == "" && !inOrder {
		collapsed = reasons["new"]
	}
	if len(drops) != 2 || reasons["missed"] != queue.ReasonExpired || collapsed != queue.ReasonCollapsed {
		t.Errorf("dropped %v", reasons)
	}
}

func checkDead(t *testing.T, inspector *queue.Inspector) {
	t.Helper()
	dead, err := inspector.Dead(t.Context(), "", 10)
	if err != nil || len(dead) != 2 || !strings.HasPrefix(dead[0].ID, "fails") || dead[0].Error != "no" {
		t.Errorf("dead: %+v, %v", dead, err)
	}
}
