package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// TestDigestsAtRandom plays random acts of producers, operators and fate on queues of digests, and judges what the handlers see:
// each job ends in exactly one way, and in one digest; members are of one key, in the order of their offers, and not too many;
// none starts that was cancelled, or too late; and nothing is left.
func TestDigestsAtRandom(t *testing.T) {
	t.Parallel()
	first := sample.SeedOf(t)
	for n := range sample.Size(3, 20, 400) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newDigestWorld(t, first+uint64(n)).play() })
		})
	}
}

// A digestWorld is a queue in which digests run, and what is known of its jobs.
type digestWorld struct {
	*rand.Rand
	t         *testing.T
	server    *miniredis.Miniredis
	client    redis.UniversalClient
	inspector *queue.Inspector
	most      int // the highest maximum that was in force

	mu      sync.Mutex
	fates   *rand.Rand            // of handlers
	jobs    map[string]*digestJob // by their names
	order   []*digestJob          // of the offers
	workers []*digestWorker
	hires   int
}

type digestJob struct {
	queue.Job
	name      string
	id        string // by its receipt
	place     int
	accepted  bool
	cancelled time.Time // when that was acknowledged
	digest    []string  // in which it ran last
	runs      int
	story     []string // its runs, for people
	running   *digestWorker
	end       string // done, dead; "" for neither
	endedBy   *digestWorker
	endedAt   time.Time
}

type digestWorker struct {
	lost     chan struct{}
	dead     bool
	killedAt time.Time
	stop     func()
}

func newDigestWorld(t *testing.T, seed uint64) *digestWorld {
	w := &digestWorld{Rand: rand.New(rand.NewPCG(seed, 15)), fates: rand.New(rand.NewPCG(seed, 16)), t: t, server: newMini(t), jobs: make(map[string]*digestJob)}
	w.client = redistest.MiniClient(t, w.server)
	w.inspector = newInspector(t, w.client, "push")
	w.govern()
	w.hire()
	w.hire()
	return w
}

func (w *digestWorld) chance(n int) bool { return w.IntN(n) == 0 }

func (w *digestWorld) govern() {
	d := queue.Digest{Max: 1 + w.IntN(6)}
	if w.chance(2) {
		d.Wait = time.Duration(w.IntN(3000)+1) * time.Millisecond
	}
	if w.chance(3) {
		d.Idle = time.Duration(w.IntN(1000)+1) * time.Millisecond
	}
	p := queue.Policy{Digest: d, User: []throttle.Rule{throttle.Window(3+w.IntN(3), time.Second)}}
	if w.chance(2) {
		p.UserConcurrency.Jobs = 1
	}
	if w.chance(4) {
		p.Capacity = 8 + w.IntN(10)
	}
	w.mu.Lock()
	w.most = max(w.most, d.Max)
	w.mu.Unlock()
	setPolicies(w.t, w.client, policies(p))
}

func (w *digestWorld) hire() {
	of := &digestWorker{lost: make(chan struct{})}
	w.hires++
	handler := asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error { return w.handle(ctx, task, of) })
	of.stop = runWorker(w.t, clientUntil(w.t, w.server, of.lost), handler, queue.WorkerConfig{
		Concurrency: 1 + w.IntN(4), Lease: 2 * time.Second, ShutdownTimeout: 100 * time.Millisecond, RetryDelay: after(300 * time.Millisecond),
	})
	w.workers = append(w.workers, of)
}

// play lets the acts happen, and then all end.
func (w *digestWorld) play() {
	acts := []struct {
		often int
		do    func()
	}{
		{40, w.offer}, {6, w.cancel}, {1, w.purge}, {4, w.pause}, {3, w.resume}, {3, w.govern}, {2, w.kill}, {1, w.leave}, {2, w.revive},
	}
	all := 0
	for _, act := range acts {
		all += act.often
	}
	for range 120 {
		n := w.IntN(all)
		for _, act := range acts {
			if n -= act.often; n < 0 {
				act.do()
				break
			}
		}
		time.Sleep(time.Duration(w.IntN(200)) * time.Millisecond)
	}
	setPolicies(w.t, w.client, policies(queue.Policy{}))
	w.resume()
	for range 60 {
		time.Sleep(5 * time.Second)
		if drained(w.t, w.client)() {
			break
		}
	}
	w.account()
	w.takePayloadsOfTheDead()
	sound(w.t, w.client)
}

// takePayloadsOfTheDead deletes the payloads that are kept apart for jobs that may be revived.
func (w *digestWorld) takePayloadsOfTheDead() {
	for _, key := range w.client.Keys(w.t.Context(), "wc:{push}:body:*").Val() {
		name := nameIn([]byte(w.client.Get(w.t.Context(), key).Val()))
		if j := w.jobs[name]; j != nil && j.end == "dead" {
			w.client.Del(w.t.Context(), key)
		}
	}
}

func (w *digestWorld) user() string { return fmt.Sprint("u", w.IntN(3)) }

// offer offers some jobs, most of them with a digest key.
func (w *digestWorld) offer() {
	var batch []queue.Job
	for range 1 + w.IntN(4) {
		j := queue.Job{Tenant: "t", User: w.user(), Type: "x", Cost: 1 + w.IntN(2), MaxAttempts: 2 + w.IntN(3)}
		if w.chance(2) {
			j.ID = fmt.Sprint("job-", len(w.order)+len(batch))
		}
		if !w.chance(5) {
			j.DigestKey = fmt.Sprint("k", w.IntN(2))
		}
		if w.chance(6) {
			j.CollapseKey = fmt.Sprint("c", w.IntN(2))
		}
		if w.chance(6) {
			j.StartBy = time.Now().Add(time.Duration(w.IntN(3000)) * time.Millisecond)
		}
		if w.chance(8) {
			j.Priority = queue.High
		}
		name := fmt.Sprint("job-", len(w.order)+len(batch))
		j.Payload = []byte(name)
		if w.chance(10) {
			j.Payload = append(append(j.Payload, ' '), make([]byte, 5000)...)
		}
		batch = append(batch, j)
	}
	var offered []*digestJob
	w.mu.Lock() // a handler may run one before its receipt is there
	for _, job := range batch {
		j := &digestJob{Job: job, name: nameIn(job.Payload), place: len(w.order), accepted: true}
		w.jobs[j.name] = j
		w.order, offered = append(w.order, j), append(offered, j)
	}
	w.mu.Unlock()
	receipts := enqueue(w.t, w.client, batch...)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, r := range receipts {
		j := offered[i]
		j.id = r.ID
		if j.accepted = r.Status == queue.Accepted || r.Status == queue.Replaced; j.accepted && (r.Digest == "") != (j.DigestKey == "") {
			w.t.Errorf("%s: %+v", j.DigestKey, r)
		}
	}
}

// nameIn returns the name of a job, which its payload begins with.
func nameIn(payload []byte) string {
	name, _, _ := strings.Cut(string(payload), " ")
	return name
}

func (w *digestWorld) cancel() {
	if len(w.order) == 0 {
		return
	}
	j := w.order[len(w.order)-1-w.IntN(min(20, len(w.order)))]
	if j.ID == "" {
		return
	}
	was, err := w.inspector.Cancel(w.t.Context(), j.ID)
	must(w.t, err)
	if was {
		w.mu.Lock()
		j.cancelled = time.Now()
		w.mu.Unlock()
	}
}

func (w *digestWorld) purge() {
	_, err := w.inspector.Purge(w.t.Context(), "t")
	must(w.t, err)
}

func (w *digestWorld) pause() {
	until := time.Now().Add(time.Duration(w.IntN(2000)) * time.Millisecond)
	must(w.t, w.inspector.Pause(w.t.Context(), queue.Pause{Scope: queue.ScopeUser, Tenant: "t", User: w.user(), Until: until}))
}

func (w *digestWorld) resume() {
	for n := range 3 {
		must(w.t, w.inspector.Resume(w.t.Context(), queue.Pause{Scope: queue.ScopeUser, Tenant: "t", User: fmt.Sprint("u", n)}))
	}
}

// kill cuts a worker off for ever: nothing that it does counts from then on.
func (w *digestWorld) kill() {
	of := w.workers[0]
	w.mu.Lock()
	of.dead, of.killedAt = true, time.Now()
	close(of.lost)
	w.mu.Unlock()
	w.replace(of)
}

func (w *digestWorld) leave() { w.replace(w.workers[0]) }

func (w *digestWorld) replace(of *digestWorker) {
	w.workers = w.workers[1:]
	w.hire()
	go of.stop()
}

func (w *digestWorld) revive() {
	dead, err := w.inspector.Dead(w.t.Context(), "", 3)
	must(w.t, err)
	for _, d := range dead {
		w.mu.Lock()
		at := w.order[slices.IndexFunc(w.order, func(j *digestJob) bool { return j.id == d.ID && j.accepted })]
		for _, name := range at.digest {
			w.jobs[name].end = ""
		}
		w.mu.Unlock()
		_, err := w.inspector.Revive(w.t.Context(), d.Entry)
		must(w.t, err)
	}
}

// silent returns when nobody hears any more how a job of a killed worker has ended.
func silent(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// handle is the handler of all workers.
func (w *digestWorld) handle(ctx context.Context, task *asynq.Task, of *digestWorker) error {
	info, _ := queue.FromContext(ctx)
	names := []string{nameIn(task.Payload())}
	if info.Digest != nil {
		names = nil
		for _, m := range info.Digest {
			names = append(names, nameIn(m.Payload))
		}
	}
	w.mu.Lock()
	if of.dead {
		w.mu.Unlock()
		return silent(ctx)
	}
	fate := w.starts(info, names, of)
	for _, name := range names {
		w.jobs[name].story = append(w.jobs[name].story, fmt.Sprintf("%s: attempt %d of %d", time.Now().Format("05.000"), info.Attempt, info.MaxAttempts))
	}
	w.mu.Unlock()
	cut := false
	select {
	case <-time.After(fate.lasts):
	case <-ctx.Done():
		cut = true
	}
	w.mu.Lock()
	if of.dead {
		w.mu.Unlock()
		return silent(ctx)
	}
	defer w.mu.Unlock()
	for _, name := range names {
		j := w.jobs[name]
		j.endedBy, j.endedAt = of, time.Now()
		j.story = append(j.story, fmt.Sprintf("%s: cut %v (%v), %v, pauses %v", time.Now().Format("05.000"), cut, context.Cause(ctx), fate.err, fate.pause))
		if j.running == of {
			j.running = nil
		}
		switch {
		case cut || fate.err == nil && fate.pause:
		case fate.err == nil:
			j.end = "done"
		case errors.Is(fate.err, asynq.SkipRetry) || info.Attempt >= info.MaxAttempts:
			j.end = "dead"
		}
	}
	if cut {
		return ctx.Err()
	}
	if fate.pause {
		return queue.Pause{Scope: queue.ScopeUser, Until: time.Now().Add(300 * time.Millisecond)}
	}
	return fate.err
}

type digestFate struct {
	lasts time.Duration
	err   error
	pause bool
}

// starts takes in that jobs start, and judges whether they may.
func (w *digestWorld) starts(info queue.Info, names []string, of *digestWorker) digestFate {
	t, now := w.t, time.Now()
	if len(names) > w.most {
		t.Errorf("a digest of %d, at most %d", len(names), w.most)
	}
	before := -1
	for _, name := range names {
		j := w.jobs[name]
		if j == nil {
			t.Errorf("%s starts, and nobody has offered it", name)
			return digestFate{}
		}
		first := w.jobs[names[0]]
		switch {
		case !j.accepted:
			t.Errorf("%s starts, and was not accepted", name)
		case j.place < before:
			t.Errorf("%v: not in the order of the offers", names)
		case (j.DigestKey == "") != (info.Digest == nil) || j.DigestKey != first.DigestKey || j.User != first.User || j.Priority != first.Priority:
			t.Errorf("%v: %s does not belong to it", names, name)
		case j.end != "" && !j.untold():
			t.Errorf("%s starts, and is %s", name, j.end)
		case j.running != nil && !j.running.dead:
			t.Errorf("%s starts, and runs", name)
		case !j.cancelled.IsZero() && j.cancelled.Before(now):
			t.Errorf("%s starts, and was cancelled", name)
		case !j.StartBy.IsZero() && info.Slot.After(j.StartBy):
			t.Errorf("%s starts %v too late", name, info.Slot.Sub(j.StartBy))
		case j.digest != nil && !subset(names, j.digest):
			t.Errorf("%s starts in %v, and before in %v", name, names, j.digest)
		}
		before = j.place
		j.digest, j.running, j.end = names, of, ""
		j.runs++
	}
	fate := digestFate{lasts: time.Duration(w.fates.IntN(300)) * time.Millisecond}
	switch p := w.fates.IntN(20); {
	case p < 3:
		fate.err = errors.New("no")
	case p < 4:
		fate.err = fmt.Errorf("no: %w", asynq.SkipRetry)
	case p < 5:
		fate.pause = true
	}
	return fate
}

// untold reports whether the worker that ended the job was killed before it can have told so for certain.
func (j *digestJob) untold() bool {
	return j.endedBy != nil && j.endedBy.dead && j.endedBy.killedAt.Sub(j.endedAt) < 100*time.Millisecond
}

func subset(of, all []string) bool {
	return !slices.ContainsFunc(of, func(name string) bool { return !slices.Contains(all, name) })
}

// neverSeenWith returns the members of a digest all of whose attempts were lost with their workers before a handler began: the jobs
// that belong with the one it is named after, and of which nothing is known either.
func (w *digestWorld) neverSeenWith(named *digestJob, reasons map[string]queue.Reason) []string {
	var names []string
	for _, j := range w.order {
		unknown := j.accepted && j.runs == 0 && reasons[j.id] == ""
		alike := j.DigestKey == named.DigestKey && j.User == named.User && j.Priority == named.Priority
		if j == named || unknown && alike && j.DigestKey != "" {
			names = append(names, j.name)
		}
	}
	return names
}

// account asks of each job how it has ended. One that has used its last attempt at a worker that was killed is dead.
func (w *digestWorld) account() {
	t, done, dead, refused := w.t, 0, 0, 0
	reasons := reasonsOf(t, w.inspector)
	records, err := w.inspector.Dead(t.Context(), "", 1000)
	must(t, err)
	for _, d := range records {
		at := w.order[slices.IndexFunc(w.order, func(j *digestJob) bool { return j.id == d.ID && j.accepted })]
		if !strings.Contains(d.Error, "lease") {
			continue
		}
		if at.digest == nil {
			at.digest = w.neverSeenWith(at, reasons)
		}
		for _, name := range at.digest {
			if j := w.jobs[name]; j.end == "" {
				j.end = "dead"
			}
		}
	}
	for _, j := range w.order {
		reason := reasons[j.id]
		if j.end != "" && reason != "" && j.untold() {
			j.end = "" // nobody heard of it, and it waited again until it was dropped
		}
		switch {
		case !j.accepted:
			refused++
		case j.end == "done":
			done++
		case j.end == "dead":
			dead++
		case reason == "":
			t.Errorf("nobody knows what became of %s of key %q: %q", j.name, j.DigestKey, j.story)
		}
		if j.end != "" && reason != "" {
			t.Errorf("%s is %s, and was dropped as %s", j.name, j.end, reason)
		}
		switch {
		case reason == queue.ReasonCancelled && j.cancelled.IsZero(),
			reason == queue.ReasonExpired && j.StartBy.IsZero(),
			reason == queue.ReasonCollapsed && j.CollapseKey == "":
			t.Errorf("%s was dropped as %s", j.name, reason)
		case !j.cancelled.IsZero() && j.end != "":
			t.Errorf("%s was cancelled, and is %s", j.name, j.end)
		}
	}
	s := stats(t, w.client)
	if int(s.Done) != done || int(s.Dropped) != len(w.order)-done-dead || int(s.Offered) != len(w.order) {
		t.Errorf("%+v; of %d jobs %d are done, %d dead and %d were refused", s, len(w.order), done, dead, refused)
	}
}
