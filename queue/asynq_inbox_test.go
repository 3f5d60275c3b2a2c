package queue_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
)

// hostileNames are names that would meet in one lane if names were joined as they are.
func hostileNames() []string {
	return []string{
		"a", "b", "a:b", "a%3Ab", "a%253Ab", ":", "::", "a:", ":b", "{a}", "}", "{", "a b", " ", "a\nb", "\n", "a\tb",
		"a\x00b", "\x00", "%", "%3A", "\u00e9", "e\u0301", "日本", "\xff\xfe", "-", "=", "=a", "0", "a:high", "high",
		strings.Repeat("x", 300), strings.Repeat("x", 299) + "y",
	}
}

func TestNamesNeverMeet(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		names := hostileNames()
		places := map[string]string{}
		want := 0
		for i, tenant := range names {
			var batch []queue.Job
			users := names
			if i >= 8 { // these meet nobody new
				users = names[:4]
			}
			want += len(users)
			for _, user := range users {
				batch = append(batch, queue.Job{Tenant: tenant, User: user, Type: user, ID: tenant + "\x00/" + user, Payload: []byte(tenant + "|" + user)})
			}
			for i, r := range enqueue(t, client, batch...) {
				if r.Status != queue.Accepted || r.Place != 1 {
					t.Fatalf("%q of %q: %+v, want it first in a lane of its own", names[i], tenant, r)
				}
				places[r.ID] = names[i]
			}
		}
		var got recorder
		runWorker(t, client, &got, queue.WorkerConfig{})
		redistest.Eventually(t, 30*time.Second, "all have run", func() bool { return stats(t, client).Done == int64(want) })
		seen := map[string]bool{}
		for _, s := range got.all() {
			if s.ID != s.Tenant+"\x00/"+s.User || s.Type != s.User || seen[s.ID] {
				t.Errorf("started %q for %q of %q, type %q, again: %v", s.ID, s.User, s.Tenant, s.Type, seen[s.ID])
			}
			seen[s.ID] = true
		}
		if len(seen) != want {
			t.Errorf("%d jobs ran, want %d", len(seen), want)
		}
	})
}

func TestInvalidJobs(t *testing.T) {
	t.Parallel()
	client := redistest.Mini(t)
	good := jobs("school", "teacher", 1)[0]
	tests := map[string]func(*queue.Job){
		"tenant is missing":         func(j *queue.Job) { j.Tenant = "" },
		"user is missing":           func(j *queue.Job) { j.User = "" },
		"type is missing":           func(j *queue.Job) { j.Type = "" },
		"user has 1025 bytes":       func(j *queue.Job) { j.User = strings.Repeat("u", 1025) },
		"cost -1":                   func(j *queue.Job) { j.Cost = -1 },
		"priority 7; Low":           func(j *queue.Job) { j.Priority = 7 },
		"timeout -1s is negative":   func(j *queue.Job) { j.Timeout = -time.Second },
		"collapse_key has 2000 byt": func(j *queue.Job) { j.CollapseKey = strings.Repeat("k", 2000) },
	}
	for want, spoil := range tests {
		bad := good
		spoil(&bad)
		_, err := newClient(t, client, "push").Enqueue(t.Context(), good, bad)
		if !errors.Is(err, queue.ErrInvalidJob) || !strings.Contains(err.Error(), "job 2 of 2") || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := queue.NewClient(client, "pu{sh}"); !errors.Is(err, queue.ErrInvalidArgument) {
		t.Errorf("got %v, want the queue's name refused", err)
	}
	if _, err := queue.NewInspector(client, "pu{sh}"); !errors.Is(err, queue.ErrInvalidArgument) {
		t.Errorf("got %v, want the queue's name refused", err)
	}
	if n := client.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys after bad offers, want none", n)
	}
}

func TestOwnIDIsOfferedOnce(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		setPolicies(t, s.client, policies(queue.Policy{Capacity: 1}))
		first, second := named("one", "teacher"), named("two", "parent")
		for i, want := range []queue.Status{queue.Accepted, queue.Duplicate, queue.Dropped, queue.Dropped} {
			receipt := enqueue(t, s.client, []queue.Job{first, first, second, second}[i])[0]
			if receipt.Status != want || receipt.ID != []string{"one", "one", "two", "two"}[i] {
				t.Errorf("offer %d: %+v, want it %s", i+1, receipt, want)
			}
		}
		drops, err := newInspector(t, s.client, "push").Drops(t.Context(), 10)
		if err != nil || len(drops) != 2 || drops[0].ID != "two" || drops[0].Reason != queue.ReasonFull || drops[0].User != "parent" {
			t.Errorf("drops %+v, %v", drops, err)
		}
	})
}

// An ID is known for a day, or a day after the job's time; then it may come again.
func TestOwnIDIsForgottenAfterADay(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		enqueue(t, s.client, named("now", "u"), named("later", "u", notBefore(time.Now().Add(time.Hour))))
		for id, want := range map[string]time.Duration{"now": 24 * time.Hour, "later": 25 * time.Hour} {
			if left := s.client.PTTL(t.Context(), "wc:{push}:id:"+id).Val(); left > want+time.Second || left < want-time.Minute {
				t.Errorf("%s is known for %v, want %v", id, left, want)
			}
		}
		if !s.virtual {
			return
		}
		for _, offer := range []struct {
			after time.Duration
			want  queue.Status
		}{{24*time.Hour - time.Minute, queue.Duplicate}, {2 * time.Minute, queue.Accepted}} {
			time.Sleep(offer.after)
			if receipt := enqueue(t, s.client, named("now", "u"))[0]; receipt.Status != offer.want {
				t.Errorf("%v later: %+v, want it %s", offer.after, receipt, offer.want)
			}
		}
	})
}

// A batch that is sent again after a broken connection must not be doubled.
func TestBatchIsOfferedOnce(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		cut := &cutAfter{}
		s.client.AddHook(cut)
		receipts := enqueue(t, s.client, jobs("school", "teacher", 10)...)
		if cut.cuts == 0 {
			t.Fatal("no reply was lost")
		}
		if all := stats(t, s.client); all.Waiting != 10 || all.Offered != 10 || receipts[9].Place != 10 {
			t.Errorf("%+v, last receipt %+v; want 10 waiting and the tenth place", all, receipts[9])
		}
	})
}

func TestInbox(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		setPolicies(t, client, policies(leakOf(200)))
		var got recorder
		runWorker(t, client, &got, queue.WorkerConfig{Inbox: true})
		producer := asynq.NewClientFromRedisClient(client)
		inspector := asynq.NewInspectorFromRedisClient(client)
		for i := range 20 {
			task := asynq.NewTaskWithHeaders("push", fmt.Append(nil, i), queue.Headers("school", "teacher"))
			if _, err := producer.Enqueue(task, asynq.Queue("push"), asynq.TaskID(fmt.Sprint("id-", i)), asynq.MaxRetry(3)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := producer.Enqueue(asynq.NewTask("push", nil), asynq.Queue("push"), asynq.TaskID("nobody's")); err != nil {
			t.Fatal(err)
		}
		redistest.Eventually(t, 10*time.Second, "all have run", func() bool { return stats(t, client).Done == 20 })
		verify(t, got.all(), leakOf(200))
		for _, s := range got.all() {
			if s.Tenant != "school" || s.User != "teacher" || !strings.HasPrefix(s.ID, "id-") || s.MaxAttempts != 4 {
				t.Errorf("started %+v", s)
			}
		}
		redistest.Eventually(t, 10*time.Second, "the task without headers is archived", func() bool {
			archived, err := inspector.ListArchivedTasks("push")
			return err == nil && len(archived) == 1 && archived[0].ID == "nobody's" &&
				strings.Contains(archived[0].LastErr, "queue.Headers")
		})
		// asynq's ID is the job's while that lives: when it has ended, it may come again.
		again := asynq.NewTaskWithHeaders("push", nil, queue.Headers("school", "teacher"))
		if _, err := producer.Enqueue(again, asynq.Queue("push"), asynq.TaskID("id-7")); err != nil {
			t.Fatal(err)
		}
		redistest.Eventually(t, 10*time.Second, "it has run again", func() bool { return stats(t, client).Done == 21 })
		if s := stats(t, client); s.Offered != 21 || s.Duplicates != 0 {
			t.Errorf("%+v, want 21 offered", s)
		}
	})
}

func TestForward(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		setPolicies(t, client, policies(leakOf(200)))
		fleet := asynq.NewClientFromRedisClient(client)
		runWorker(t, client, queue.Forward(fleet, "default", asynq.MaxRetry(2)), queue.WorkerConfig{})
		receipts := enqueue(t, client, jobs("school", "teacher", 20)...)
		inspector := asynq.NewInspectorFromRedisClient(client)
		redistest.Eventually(t, 10*time.Second, "all were handed over", func() bool { return stats(t, client).Done == 20 })
		tasks, err := inspector.ListPendingTasks("default", asynq.PageSize(100))
		must(t, err)
		byID := map[string]*asynq.TaskInfo{}
		for _, task := range tasks {
			_, id, _ := strings.Cut(task.ID, ":")
			id, _, _ = strings.Cut(id, ":")
			byID[id] = task
		}
		for _, r := range receipts {
			task := byID[r.ID]
			if task == nil || task.Type != "push" || task.MaxRetry != 2 || !strings.HasPrefix(string(task.Payload), "school teacher") ||
				!strings.HasPrefix(task.ID, "push:") || task.Headers["waterclock-tenant"] != "school" || task.Headers["waterclock-user"] != "teacher" {
				t.Errorf("%s: %+v", r.ID, task)
			}
		}
	})
}

func TestForwardRecognisesARepeatedHandOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		fleet := asynq.NewClientFromRedisClient(client)
		if _, err := fleet.Enqueue(asynq.NewTask("push", nil), asynq.TaskID("seen"), asynq.Queue("default")); err != nil {
			t.Fatal(err)
		}
		runWorker(t, client, queue.Forward(fleet, "default"), queue.WorkerConfig{})
		job := jobs("school", "teacher", 1)[0]
		job.ID = "seen"
		enqueue(t, client, job)
		time.Sleep(time.Second)
		checkOutcome(t, client, queue.Counters{Done: 1}, "")
	})
}

// lostOffers is a hook that loses the replies of offers until an instant.
type lostOffers struct{ until atomic.Int64 }

func (l *lostOffers) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *lostOffers) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (l *lostOffers) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		offers := strings.HasPrefix(cmd.Name(), "eval") && slices.Contains(cmd.Args(), any("wc:{push}:tenants"))
		if offers && err == nil && time.Now().UnixNano() < l.until.Load() {
			err = &net.OpError{Op: "read", Err: errors.New("connection reset")}
			cmd.SetErr(err)
		}
		return err
	}
}

// A task that was filed runs once, although its inbox is told so only long after the job has ended.
func TestInboxFilesOnceWhileRepliesAreLost(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	for _, lost := range []time.Duration{time.Second, 33 * time.Second, 3 * time.Minute} {
		t.Run(lost.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := redistest.Mini(t)
				l := &lostOffers{}
				client.AddHook(l)
				var got recorder
				runWorker(t, client, &got, queue.WorkerConfig{Inbox: true})
				time.Sleep(3 * time.Second)
				l.until.Store(time.Now().Add(lost).UnixNano())
				task, err := queue.NewTask(queue.Job{ID: "order-17", Tenant: "t", User: "u", Type: "push"})
				must(t, err)
				_, err = asynq.NewClientFromRedisClient(client).EnqueueContext(t.Context(), task, asynq.Queue("push"))
				must(t, err)
				time.Sleep(lost + 2*time.Minute)
				if n := got.count(); n != 1 {
					t.Errorf("the task ran %d times", n)
				}
				checkOutcome(t, client, queue.Counters{Done: 1}, "")
			})
		})
	}
}

// Jobs that are forwarded into the worker's own inbox would come back for ever.
func TestForwardIntoTheOwnInbox(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		fleet := asynq.NewClientFromRedisClient(client)
		const reason = `Forward releases jobs into the asynq queue "push", whose inbox this worker opens`
		cfg := queue.WorkerConfig{Queues: []string{"mail", "push"}, Inbox: true}
		worker, err := queue.NewWorker(client, cfg)
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := worker.Run(ctx, queue.Forward(fleet, "push")); !errors.Is(err, queue.ErrInvalidArgument) || !strings.Contains(err.Error(), reason) {
			t.Errorf("Run: %v", err)
		}

		mux := asynq.NewServeMux()
		mux.Handle("push", queue.Forward(fleet, "push"))
		runWorker(t, client, mux, cfg)
		_, err = fleet.Enqueue(asynq.NewTaskWithHeaders("push", nil, queue.Headers("school", "teacher")), asynq.Queue("push"))
		must(t, err)
		time.Sleep(10 * time.Second)
		checkOutcome(t, client, queue.Counters{Dead: 1, Failed: 1}, reason)
	})
}
