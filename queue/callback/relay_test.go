package callback_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/callback"
)

const endpoint = "https://shop.example/hooks"

// told is what callbacks said: by the ID of the job, each message as "type: reason or error, attempts".
type told struct {
	mu  sync.Mutex
	all map[string][]string
}

// ProcessTask takes the callbacks' jobs, as a worker with the webhook sender does.
func (d *told) ProcessTask(_ context.Context, task *asynq.Task) error {
	var message struct {
		Data    map[string]string
		Targets []struct{ Provider, Endpoint, Token, Secret string }
	}
	if err := json.Unmarshal(task.Payload(), &message); err != nil {
		return err
	}
	data := message.Data
	text := strings.TrimSpace(task.Type() + " " + data["reason"] + data["error"] + " " + data["attempts"])
	if to := message.Targets[0]; !strings.HasPrefix(to.Endpoint+to.Token, endpoint) {
		text += fmt.Sprintf(" to %+v", to)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all == nil {
		d.all = make(map[string][]string)
	}
	d.all[data["id"]] = append(d.all[data["id"]], text)
	return nil
}

func (d *told) read() map[string][]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.all)
}

// run runs something until the test, or its bubble, ends.
func run(t *testing.T, what func(ctx context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- what(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func newRelay(t *testing.T, rdb redis.UniversalClient) *callback.Relay {
	relay, err := callback.NewRelay(callback.Config{Redis: rdb, Queues: []string{"push"}})
	if err != nil {
		t.Fatal(err)
	}
	return relay
}

func newWorker(t *testing.T, rdb redis.UniversalClient, name string) *queue.Worker {
	w, err := queue.NewWorker(rdb, queue.WorkerConfig{
		Queues: []string{name}, RetryDelay: func(int, error, *asynq.Task) time.Duration { return time.Second },
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// limit sets the policies of a queue.
func limit(t *testing.T, rdb redis.UniversalClient, name, text string) {
	t.Helper()
	policies, err := queue.ParsePolicies("p.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	inspector, err := queue.NewInspector(rdb, name)
	if err == nil {
		err = inspector.SetPolicies(t.Context(), policies)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func offer(t *testing.T, rdb redis.UniversalClient, jobs ...queue.Job) []queue.Receipt {
	t.Helper()
	client, err := queue.NewClient(rdb, "push")
	if err != nil {
		t.Fatal(err)
	}
	for i := range jobs {
		jobs[i].Type = "push"
		if jobs[i].Tenant == "" {
			jobs[i].Tenant = "school"
		}
		jobs[i].User += "u"
		if jobs[i].Callback.URL == "" && jobs[i].ID != "silent" {
			jobs[i].Callback.URL = endpoint + "/" + jobs[i].ID
		}
	}
	receipts, err := client.Enqueue(t.Context(), jobs...)
	if err != nil {
		t.Fatal(err)
	}
	return receipts
}

// Each way in which an accepted job can end is told once, and no other.
func TestEveryEndIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := redistest.Mini(t)
		inspector, err := queue.NewInspector(rdb, "push")
		if err != nil {
			t.Fatal(err)
		}
		limit(t, rdb, "push", "policies: {p: {user: {rules: [{window: 2/1h, over: drop}]}}}\ndefault: p\n")
		wait := time.Now().Add(10 * time.Minute)
		offer(t, rdb,
			queue.Job{ID: "done", User: "1"}, queue.Job{ID: "large", User: "2", Payload: make([]byte, 10_000)},
			queue.Job{ID: "retried", User: "3"}, queue.Job{ID: "dead", User: "4"}, queue.Job{ID: "revoked", User: "5"},
			queue.Job{ID: "first", User: "6", Cost: 2}, queue.Job{ID: "over", User: "6"},
			queue.Job{ID: "old", User: "7", CollapseKey: "k"}, queue.Job{ID: "new", User: "7", CollapseKey: "k"},
			queue.Job{ID: "cancelled", User: "8"}, queue.Job{ID: "silent", User: "9"}, queue.Job{ID: "later", User: "a", NotBefore: wait},
		)
		if again := offer(t, rdb, queue.Job{ID: "done", User: "1"}); again[0].Status != queue.Duplicate {
			t.Fatalf("the second offer is %+v", again)
		}
		if _, err := inspector.Cancel(t.Context(), "cancelled"); err != nil {
			t.Fatal(err)
		}
		handle := func(ctx context.Context, _ *asynq.Task) error {
			info, _ := queue.FromContext(ctx)
			switch {
			case info.ID == "retried" && info.Attempt == 1:
				return errors.New("again")
			case info.ID == "dead":
				return fmt.Errorf("no such device: %w", asynq.SkipRetry)
			case info.ID == "revoked":
				return asynq.RevokeTask
			}
			return nil
		}
		got := new(told)
		worker, sender := newWorker(t, rdb, "push"), newWorker(t, rdb, callback.Queue("push"))
		stops := []func(){
			run(t, newRelay(t, rdb).Run), run(t, newRelay(t, rdb).Run), // any number may run
			run(t, func(ctx context.Context) error { return worker.Run(ctx, asynq.HandlerFunc(handle)) }),
			run(t, func(ctx context.Context) error { return sender.Run(ctx, got) }),
		}
		defer func() {
			for _, stop := range stops {
				stop()
			}
		}()
		time.Sleep(5 * time.Second)
		offer(t, rdb, queue.Job{ID: "purged", User: "b", NotBefore: time.Now().Add(time.Second)})
		if err := inspector.Pause(t.Context(), queue.Pause{Scope: queue.ScopeTenant, Tenant: "school", Until: time.Now().Add(time.Minute)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if _, err := inspector.Purge(t.Context(), "school"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		want := map[string][]string{
			"done": {"job.done  1"}, "large": {"job.done  1"}, "retried": {"job.done  2"}, "revoked": {"job.done  1"},
			"dead": {"job.dead no such device: " + asynq.SkipRetry.Error() + " 1"}, "first": {"job.done  1"}, "over": {"job.dropped rule"},
			"old": {"job.dropped collapsed"}, "new": {"job.done  1"}, "cancelled": {"job.dropped cancelled"}, "purged": {"job.dropped purged"},
		}
		if diff := cmp.Diff(want, got.read()); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
		if n := rdb.XLen(t.Context(), "wc:{push}:done").Val(); n > 1 {
			t.Errorf("%d ends are kept that were told", n)
		}
	})
}

// An end that cannot be delivered costs the others nothing, and a Redis that is away for some time no end.
func TestOneBadCallbackAmongGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := redistest.Mini(t)
		var jobs []queue.Job
		for i := range 1000 {
			jobs = append(jobs, queue.Job{ID: fmt.Sprintf("j%d", i), User: fmt.Sprint(i)})
		}
		offer(t, rdb, jobs...)
		// What no program of ours writes.
		for _, fields := range [][]any{
			{"lane", "x", "at", "y", "job", "z"}, {"other", ""}, {"lane", "school:u:1", "at", "1", "job", "0001978e4c8e01600"},
		} {
			if err := rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: "wc:{push}:done", Values: fields}).Err(); err != nil {
				t.Fatal(err)
			}
		}
		got := new(told)
		worker, sender := newWorker(t, rdb, "push"), newWorker(t, rdb, callback.Queue("push"))
		stopWorker := run(t, func(ctx context.Context) error {
			return worker.Run(ctx, asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil }))
		})
		time.Sleep(time.Minute) // all have ended before anybody relays
		stopWorker()
		// While their queue takes no jobs, ends are kept.
		broken := "wc:{" + callback.Queue("push") + "}:meta"
		if err := rdb.Set(t.Context(), broken, "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
		defer run(t, func(ctx context.Context) error { return sender.Run(ctx, got) })()
		defer run(t, newRelay(t, rdb).Run)()
		time.Sleep(5 * time.Second)
		if n := len(got.read()); n > 0 {
			t.Errorf("told of %d", n)
		}
		if err := rdb.Del(t.Context(), broken).Err(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second)
		all := got.read()
		if len(all) != len(jobs) {
			t.Errorf("told of %d, want %d", len(all), len(jobs))
		}
		for _, id := range slices.Sorted(maps.Keys(all)) {
			if len(all[id]) != 1 || all[id][0] != "job.done  1" {
				t.Errorf("%s was told %q", id, all[id])
			}
		}
	})
}

// A callback that could not be delivered is refused at the offer.
func TestCallbacksAreValidated(t *testing.T) {
	secret := "whsec_" + strings.Repeat("AAAA", 8)
	for _, c := range []struct {
		callback queue.Callback
		want     string
	}{
		{queue.Callback{URL: endpoint, Secret: secret + " " + secret}, ""},
		{queue.Callback{URL: "http://127.0.0.1:80/"}, ""},
		{queue.Callback{Secret: secret}, "callback.url is missing"},
		{queue.Callback{URL: "shop.example"}, "callback.url is no URL of an endpoint"},
		{queue.Callback{URL: "ftp://shop.example/"}, "callback.url is no URL of an endpoint"},
		{queue.Callback{URL: "https:///path"}, "callback.url is no URL of an endpoint"},
		{queue.Callback{URL: "https://shop.example/a b"}, "callback.url is no URL of an endpoint"},
		{queue.Callback{URL: endpoint + strings.Repeat("x", 800)}, "callback has 826 bytes"},
		{queue.Callback{URL: endpoint, Secret: "secret"}, "callback.secret is no secret"},
		{queue.Callback{URL: endpoint, Secret: "whsec_AAAA"}, "callback.secret is no secret"},
	} {
		err := queue.Job{Tenant: "t", User: "u", Type: "push", Callback: c.callback}.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.callback, err, c.want)
		}
	}
}

// A queue whose key has another type holds up no other queue's callbacks.
func TestOneBadQueueAmongGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := redistest.Mini(t)
		offer(t, rdb, queue.Job{ID: "a", User: "1"})
		for _, bad := range []string{"bad", "worse", "worst"} {
			if err := rdb.Set(t.Context(), "wc:{"+bad+"}:told", "x", 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		relay, err := callback.NewRelay(callback.Config{Redis: rdb, Queues: []string{"bad", "worse", "push", "worst"}})
		if err != nil {
			t.Fatal(err)
		}
		got := new(told)
		worker, sender := newWorker(t, rdb, "push"), newWorker(t, rdb, callback.Queue("push"))
		defer run(t, relay.Run)()
		time.Sleep(10 * time.Minute) // the others' trouble is as old as that
		done := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })
		defer run(t, func(ctx context.Context) error { return worker.Run(ctx, done) })()
		defer run(t, func(ctx context.Context) error { return sender.Run(ctx, got) })()
		time.Sleep(700 * time.Millisecond) // a start, a look, and the acknowledgements
		if all := got.read(); len(all["a"]) != 1 {
			t.Errorf("told %v within 0.7 s", all)
		}
	})
}

// The ends in all partitions of a queue are told, each once, though many are of one instant. The queue is divided when a relay has
// looked at it already.
func TestADividedQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := redistest.Mini(t)
		got := new(told)
		defer run(t, newRelay(t, rdb).Run)()
		time.Sleep(12 * time.Second)
		limit(t, rdb, "push", "partitions: 4\n")
		worker, sender := newWorker(t, rdb, "push"), newWorker(t, rdb, callback.Queue("push"))
		handle := func(ctx context.Context, _ *asynq.Task) error {
			info, _ := queue.FromContext(ctx)
			time.Sleep(time.Until(info.Started.Truncate(time.Second).Add(2 * time.Second)))
			if strings.HasPrefix(info.ID, "dead") {
				return asynq.SkipRetry
			}
			return nil
		}
		defer run(t, func(ctx context.Context) error { return worker.Run(ctx, asynq.HandlerFunc(handle)) })()
		defer run(t, func(ctx context.Context) error { return sender.Run(ctx, got) })()
		want := make(map[string][]string)
		var jobs []queue.Job
		for k := range 40 {
			id, told := fmt.Sprint("done", k), "job.done  1"
			if k%2 == 0 {
				id, told = fmt.Sprint("dead", k), "job.dead "+asynq.SkipRetry.Error()+" 1"
			}
			jobs = append(jobs, queue.Job{ID: id, Tenant: fmt.Sprint("school-", k)})
			want[id] = []string{told}
		}
		offer(t, rdb, jobs...)
		time.Sleep(15 * time.Second)
		if diff := cmp.Diff(want, got.read()); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
		entries := make(map[string]int)
		for k := range 4 {
			for _, m := range rdb.XRange(t.Context(), fmt.Sprintf("wc:{push/%d}:dead", k), "-", "+").Val() {
				entries[m.ID]++
			}
		}
		if most := slices.Max(slices.Collect(maps.Values(entries))); most < 2 {
			t.Error("no two entries are of one instant")
		}
	})
}
