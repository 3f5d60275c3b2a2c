package queue_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// A key of one tenant that holds something else costs that tenant its jobs, and nobody
// else any: whether it is there before the offers or comes between them and the starts.
func TestWrongTypesOfOneTenant(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, key := range sample.Draw(t, []string{
		"tenant:odd", "tenant:odd without numbers", "due:odd", "due:odd:high", "lane:odd:u", "fold:odd:u", "state:t:odd", "state:u:odd:u", "id:odd-id",
	}, 0, 4) {
		for _, when := range []string{"before", "between"} {
			t.Run(key+" "+when, func(t *testing.T) {
				onStages(t, func(t *testing.T, s stage) {
					setPolicies(t, s.client, policies(queue.Policy{
						Tenant: []throttle.Rule{throttle.Leak(1000, time.Second)}, User: []throttle.Rule{throttle.Window(100, time.Second)},
					}))
					spoil := func() {
						if key == "tenant:odd without numbers" {
							for _, field := range []string{"in", "other", "out", "back", "started", "dropped", "failed", "dead"} {
								must(t, s.client.HSet(t.Context(), "wc:{push}:tenant:odd", field, "many").Err())
							}
							return
						}
						must(t, s.client.Del(t.Context(), "wc:{push}:"+key).Err())
						if key == "id:odd-id" || key[:5] == "state" {
							must(t, s.client.HSet(t.Context(), "wc:{push}:"+key, "a", "b").Err())
						} else {
							must(t, s.client.Set(t.Context(), "wc:{push}:"+key, "a", 0).Err())
						}
					}
					odd := named("odd-id", "u", news)
					odd.Tenant = "odd"
					if key == "due:odd:high" {
						odd.Priority = queue.High
					}
					good := func(i int) queue.Job {
						j := named(fmt.Sprint("good-", i), "u")
						j.Tenant = fmt.Sprint("good-", i%3)
						return j
					}
					if when == "before" {
						spoil()
					}
					client := newClient(t, s.client, "push")
					receipts, err := client.Enqueue(t.Context(), good(0), odd, good(1))
					must(t, err)
					if r := receipts[1]; r.Status == queue.Dropped && r.Reason != queue.ReasonBroken {
						t.Errorf("the odd one: %+v", r)
					}
					if receipts[1].Reason == queue.ReasonBroken {
						lane, fold := s.client.LLen(t.Context(), "wc:{push}:lane:odd:u").Val(), s.client.HLen(t.Context(), "wc:{push}:fold:odd:u").Val()
						if ids := s.client.Exists(t.Context(), "wc:{push}:id:odd-id").Val(); lane+fold+ids > 0 {
							t.Errorf("of a refused job %d entries, %d folds and %d IDs are left", lane, fold, ids)
						}
					}
					if when == "between" {
						spoil()
					}
					var got recorder
					runWorker(t, s.client, &got, queue.WorkerConfig{Logger: slog.New(slog.DiscardHandler)})
					for i := 2; i < 12; i++ {
						enqueue(t, s.client, good(i))
						if s.virtual {
							time.Sleep(time.Second)
						}
					}
					ran := func(which string) int {
						n := 0
						for _, start := range got.all() {
							if start.Tenant[:3] == which {
								n++
							}
						}
						return n
					}
					s.eventually(t, "all good ones have run", func() bool { return ran("goo") == 12 })
					for _, start := range got.all() {
						if late := start.Waited; start.Tenant != "odd" && s.virtual && start.ID != "good-0" && start.ID != "good-1" && late > 100*time.Millisecond {
							t.Errorf("%s waited %v", start.ID, late)
						}
					}
					if ran("odd") > 1 {
						t.Error("the odd one ran twice")
					}
				})
			})
		}
	}
}

// Jobs that nobody can read, whichever way they are broken, are dead with a reason. Their
// neighbours start at once, in their first attempt.
func TestUnreadableJobs(t *testing.T) {
	t.Parallel()
	sample.Slow(t)
	const good = "\x00\x04push"
	broken := map[string]string{
		"nothing but a stamp": "", "cut off": "\x07\x09or", "an endless number": "\x01\x0b\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
		"a newer version's": "\xc8\x01x" + good, "an instant beyond all": "\x02\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" + good,
		"a priority of 9": "\x05\x01\x09" + good, "no payload": "\x0c\x04gone" + good, "a stub without its job": "=",
	}
	for name, body := range broken {
		t.Run(name, func(t *testing.T) {
			onStages(t, func(t *testing.T, s stage) {
				lanes := []string{"lane", "later"}
				if body == "=" {
					lanes = lanes[:1]
				}
				var got recorder
				runWorker(t, s.client, &got, queue.WorkerConfig{Logger: slog.New(slog.DiscardHandler)})
				for i, where := range lanes {
					all := jobs("school", "neighbour", 5)
					for k := range 5 {
						all = append(all, jobs("school", fmt.Sprint("other-", k), 1)...)
						all[k].MaxAttempts, all[5+k].MaxAttempts = 1, 1
					}
					must(t, newInspector(t, s.client, "push").Pause(t.Context(), queue.Pause{Scope: queue.ScopeQueue, Until: time.Now().Add(time.Hour)}))
					enqueue(t, s.client, all[:3]...)
					breakIn(t, s.client, where, body, i)
					enqueue(t, s.client, all[3:]...)
					must(t, newInspector(t, s.client, "push").Resume(t.Context(), queue.Pause{Scope: queue.ScopeQueue}))
					resumed := time.Now()
					s.eventually(t, "its neighbours have run", func() bool { return got.count() == 10*(i+1) })
					s.eventually(t, "it is dead", func() bool { return stats(t, s.client).Dead == int64(i+1) })
					if all := stats(t, s.client); all.Dropped != 0 || all.Waiting != 0 || all.Offered != int64(11*(i+1)) {
						t.Errorf("it is dead, and nothing else: %+v", all)
					}
					for _, start := range got.all()[10*i:] {
						if late := start.Started.Sub(resumed); start.Attempt != 1 || s.virtual && late > 100*time.Millisecond {
							t.Errorf("a neighbour of %q started %v later in attempt %d", where, late, start.Attempt)
						}
					}
				}
				dead, err := newInspector(t, s.client, "push").Dead(t.Context(), "", 10)
				must(t, err)
				for _, d := range dead {
					if d.Error == "" || d.Tenant != "school" || d.User != "neighbour" {
						t.Errorf("dead: %+v", d)
					}
				}
				s.eventually(t, "nothing is left", drained(t, s.client))
			})
		})
	}
}

// breakIn puts a job that cannot be read where jobs of the school's neighbour wait, and
// counts it as an offer does.
func breakIn(t *testing.T, client redis.UniversalClient, where, body string, n int) {
	t.Helper()
	ctx, stamp := t.Context(), fmt.Sprintf("0643fc1fde2%02x", n)
	entry := stamp + body
	if body == "=" {
		entry = "=gone"
	}
	counter := "in"
	if where == "later" {
		counter = "other"
		must(t, client.ZAdd(ctx, "wc:{push}:later", redis.Z{Score: float64(time.Now().UnixMicro()), Member: "school:neighbour:1 " + entry}).Err())
		must(t, client.XAdd(ctx, &redis.XAddArgs{Stream: "wc:{push}:notices", Values: []any{"!later", "1"}}).Err())
	} else {
		must(t, client.RPush(ctx, "wc:{push}:lane:school:neighbour", entry).Err())
	}
	for _, key := range []string{"meta", "tenant:school"} {
		must(t, client.HIncrBy(ctx, "wc:{push}:"+key, counter, 1).Err())
	}
}

// A worker that meets keys of another schema says so, starts nothing and changes nothing.
func TestAWorkerOfAnotherSchema(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		setPolicies(t, s.client, policies(leakOf(10)))
		enqueue(t, s.client, jobs("school", "teacher", 3)...)
		must(t, s.client.HSet(t.Context(), "wc:{push}:meta", "schema", "3").Err())
		before := s.client.Keys(t.Context(), "*").Val()
		var log redistest.Buffer
		var got recorder
		runWorker(t, s.client, &got, queue.WorkerConfig{Lease: time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		s.eventually(t, "it says so", func() bool { return strings.Contains(log.String(), "another schema") })
		if s.virtual {
			time.Sleep(time.Minute)
		}
		after := s.client.Keys(t.Context(), "*").Val()
		if got.count() > 0 || len(after) > len(before) {
			t.Errorf("%d starts; keys before %q, after %q", got.count(), before, after)
		}
		if lines := strings.Count(log.String(), "another schema"); s.virtual && lines > 10 {
			t.Errorf("it says so %d times in a minute", lines)
		}
	})
}

// The stream of notices is deleted with one that the leader has not read, and once more: the job that it told of starts soon all the
// same.
func TestNoticesThatAreLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		setPolicies(t, client, policies(leakOf(1000)))
		var got recorder
		runWorker(t, client, &got, queue.WorkerConfig{})
		time.Sleep(2 * time.Second)
		for n := range 2 {
			user := func(name string) string { return fmt.Sprint(name, "-", n) }
			enqueue(t, client, jobs("school", user("teacher"), 1)...)
			synctest.Wait() // it was read; for the next millisecond nothing is
			enqueue(t, client, jobs("school", user("parent"), 2)...)
			must(t, client.Del(t.Context(), "wc:{push}:notices").Err())
			enqueue(t, client, jobs("school", user("janitor"), 1)...) // it makes the stream anew
			time.Sleep(3 * time.Second)
			if started, want := got.count(), 5*n+4; started != want {
				t.Errorf("%d starts three seconds after the notices were deleted, want %d", started, want)
			}
			enqueue(t, client, jobs("school", user("pupil"), 1)...)
			time.Sleep(10 * time.Millisecond)
			if started, want := got.count(), 5*n+5; started != want {
				t.Errorf("%d starts after another offer, want %d", started, want)
			}
		}
	})
}
