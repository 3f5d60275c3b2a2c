package notify_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/queue"
)

// A recorder is a sender that notes each send, and does what it is told for a device.
type recorder struct {
	mu    sync.Mutex
	sends []string
	do    map[string]notify.Outcome
}

func (r *recorder) Send(_ context.Context, m notify.Message, to notify.Target) notify.Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sends = append(r.sends, m.Title+" "+to.Token)
	if o, ok := r.do[to.Token]; ok {
		return o
	}
	return notify.Outcome{Action: notify.Done}
}

func (r *recorder) set(device string, o notify.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.do == nil {
		r.do = make(map[string]notify.Outcome)
	}
	r.do[device] = o
}

// sent returns the sends since the last call, sorted.
func (r *recorder) sent() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.sends = nil }()
	slices.Sort(r.sends)
	return fmt.Sprint(r.sends)
}

var (
	ok      = notify.Outcome{Action: notify.Done}
	refused = notify.Outcome{Action: notify.Drop, Err: errors.New("invalid argument")}
	broken  = notify.Outcome{Action: notify.Retry, Err: errors.New("bad gateway"), Reached: true}
)

func two(title string) notify.Message {
	return notify.Message{Title: title, Targets: []notify.Target{{Token: "a"}, {Token: "b"}}}
}

func (s *school) revive(t *testing.T) {
	t.Helper()
	dead, err := s.inspector().Dead(t.Context(), "", 10)
	must(t, err)
	if len(dead) != 1 {
		t.Fatalf("%d dead, want 1: %+v", len(dead), s.stats())
	}
	n, err := s.inspector().Revive(t.Context(), dead[0].Entry)
	must(t, err)
	if n != 1 {
		t.Fatalf("%d revived, want 1", n)
	}
	time.Sleep(time.Minute)
}

// A job that died is revived: it goes to the devices that do not have the message.
func TestRevive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		s := newSchool(t, &r, notify.HandlerConfig{}, queue.Policy{})
		r.set("a", refused)
		r.set("b", refused)
		s.notify("teacher", two("refused"))
		time.Sleep(time.Minute)
		if got := r.sent(); got != "[refused a refused b]" {
			t.Errorf("sent %s", got)
		}
		r.set("a", ok)
		r.set("b", ok)
		s.revive(t)
		if got := r.sent(); got != "[refused a refused b]" || s.stats().Done != 1 {
			t.Errorf("revived, it sent %s; %+v", got, s.stats())
		}

		r.set("b", broken)
		job, err := notify.NewJob("school", "teacher", two("half"))
		must(t, err)
		job.MaxAttempts = 8 // some two minutes
		_, err = newClient(t, s.rdb, "push").Enqueue(t.Context(), job)
		must(t, err)
		time.Sleep(5 * time.Minute)
		r.sent()
		s.revive(t)
		if got := r.sent(); slices.Contains([]string{"", "half a"}, got[1:len(got)-1]) || got[1:7] == "half a" {
			t.Errorf("revived, it sent %s; a has it", got)
		}
		r.set("b", ok)
		time.Sleep(5 * time.Minute)
		if got := r.sent(); s.stats().Done != 2 {
			t.Errorf("in the end: %+v, sent %s", s.stats(), got)
		}
	})
}

// A day after its death nobody knows whether an ID means the old job: it is sent to all.
func TestReviveAfterADay(t *testing.T) {
	sample.WholeOnly(t)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		s := newSchool(t, &r, notify.HandlerConfig{}, queue.Policy{})
		r.set("b", broken)
		s.notify("teacher", two("late"))
		time.Sleep(25 * time.Hour)
		r.sent()
		r.set("b", ok)
		s.revive(t)
		if got := r.sent(); got != "[late a late b]" {
			t.Errorf("sent %s", got)
		}
	})
}

// An ID may be used again after a day: it is another message then, however late the
// first one was delivered.
func TestIDAgain(t *testing.T) {
	sample.WholeOnly(t)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		s := newSchool(t, &r, notify.HandlerConfig{}, queue.Policy{})
		offer := func() {
			job, err := notify.NewJob("school", "teacher", two("digest"))
			must(t, err)
			job.ID = "digest-teacher"
			receipts, err := newClient(t, s.rdb, "push").Enqueue(t.Context(), job)
			must(t, err)
			if receipts[0].Status != queue.Accepted {
				t.Errorf("%+v", receipts[0])
			}
		}
		must(t, s.inspector().Pause(t.Context(), queue.Pause{Scope: queue.ScopeTenant, Tenant: "school", Until: time.Now().Add(10 * time.Minute)}))
		offer()
		time.Sleep(24*time.Hour + time.Minute)
		offer()
		time.Sleep(time.Minute)
		if got := r.sent(); got != "[digest a digest a digest b digest b]" || s.stats().Done != 2 {
			t.Errorf("sent %s; %+v", got, s.stats())
		}
	})
}

// One device that stands twice among the targets gets the message once.
func TestOneTargetTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		s := newSchool(t, &r, notify.HandlerConfig{}, queue.Policy{})
		m := notify.Message{Title: "once", Targets: []notify.Target{{Token: "a"}, {Token: "b"}, {Token: "a", Registered: time.Now()}}}
		r.set("b", broken)
		s.notify("teacher", m)
		time.Sleep(200 * time.Millisecond)
		r.set("b", ok)
		time.Sleep(time.Minute)
		if got := r.sent(); got != "[once a once b once b]" || s.stats().Done != 1 {
			t.Errorf("sent %s; %+v", got, s.stats())
		}
	})
}

// A worker that stops sends nothing new, and what it has not sent counts no attempt.
func TestStopBeforeTheSend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rdb := redistest.Mini(t)
		var r recorder
		handler, err := notify.NewHandler(&r, notify.HandlerConfig{Redis: rdb})
		must(t, err)
		job, err := notify.NewJob("school", "teacher", two("stop"))
		must(t, err)
		_, err = newClient(t, rdb, "push").Enqueue(t.Context(), job)
		must(t, err)
		worker, err := queue.NewWorker(rdb, queue.WorkerConfig{Queues: []string{"push"}, ShutdownTimeout: time.Nanosecond})
		must(t, err)
		ctx, stop := context.WithCancel(t.Context())
		blocked := asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			stop()
			<-ctx.Done()
			return handler.ProcessTask(ctx, task)
		})
		must(t, worker.Run(ctx, blocked))
		st, err := newInspector(t, rdb, "push").Stats(t.Context())
		must(t, err)
		if got := r.sent(); got != "[]" || st.Failed != 0 || st.Waiting != 1 {
			t.Errorf("sent %s; %+v", got, st)
		}
	})
}

// A device that refused the message is asked again when the job is revived, although it
// was not while the job lived.
func TestReviveAsksWhoRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		s := newSchool(t, &r, notify.HandlerConfig{}, queue.Policy{})
		r.set("a", refused)
		r.set("b", broken)
		job, err := notify.NewJob("school", "teacher", two("x"))
		must(t, err)
		job.MaxAttempts = 3
		_, err = newClient(t, s.rdb, "push").Enqueue(t.Context(), job)
		must(t, err)
		time.Sleep(time.Minute)
		if got := r.sent(); got != "[x a x b x b x b]" {
			t.Errorf("sent %s", got)
		}
		r.set("a", ok)
		r.set("b", ok)
		s.revive(t)
		if got := r.sent(); got != "[x a x b]" || s.stats().Done != 1 {
			t.Errorf("revived, it sent %s; %+v", got, s.stats())
		}
	})
}

// A device that refused the message is not asked again while the others are.
func TestARefusalIsRemembered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		s := newSchool(t, &r, notify.HandlerConfig{}, queue.Policy{})
		r.set("a", refused)
		r.set("b", broken)
		s.notify("teacher", two("x"))
		time.Sleep(200 * time.Millisecond)
		r.set("b", ok)
		time.Sleep(time.Minute)
		if got := r.sent(); got != "[x a x b x b]" || s.stats().Done != 1 {
			t.Errorf("sent %s; %+v", got, s.stats())
		}
	})
}

// A lateSender takes a message just when the attempt's time is over.
type lateSender struct{ recorder }

func (l *lateSender) Send(ctx context.Context, m notify.Message, to notify.Target) notify.Outcome {
	if o := l.recorder.Send(ctx, m, to); o.Action != notify.Done {
		return o
	}
	<-ctx.Done()
	return notify.Outcome{Action: notify.Done}
}

// What is taken when the attempt's time is over is written down all the same.
func TestTakenAtTheLastMoment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l lateSender
		s := newSchool(t, &l, notify.HandlerConfig{}, queue.Policy{})
		l.set("b", broken)
		job, err := notify.NewJob("school", "teacher", two("x"))
		must(t, err)
		job.Timeout, job.MaxAttempts = time.Second, 3
		_, err = newClient(t, s.rdb, "push").Enqueue(t.Context(), job)
		must(t, err)
		time.Sleep(time.Minute)
		if got := l.sent(); got != "[x a x b x b x b]" {
			t.Errorf("sent %s; %+v", got, s.stats())
		}
	})
}

// Jobs of two tenants may have one ID, in different partitions of a queue: what one of them has delivered is not the other's.
func TestOneIDOfTwoTenants(t *testing.T) {
	seen := make(map[string]queue.Info)
	for _, job := range []queue.Info{
		{Queue: "push", Tenant: "a", ID: "1"}, {Queue: "push", Tenant: "b", ID: "1"}, {Queue: "push", Tenant: "a", ID: "b:1"},
		{Queue: "push", Tenant: "a:b", ID: "1"}, {Queue: "mail", Tenant: "a", ID: "1"},
	} {
		key := notify.DeadLedgerKey(job)
		if other, is := seen[key]; is || !strings.HasPrefix(key, "wc:{"+job.Queue+"}:") {
			t.Errorf("%q is the key of %+v and of %+v", key, job, other)
		}
		seen[key] = job
	}
}
