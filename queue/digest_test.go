package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/doctor"
	"github.com/waterclock/waterclock/throttle"
)

// reply is a job of user u with the digest key "replies".
func reply(id string) queue.Job {
	return queue.Job{ID: id, Tenant: "t", User: "u", Type: "reply", DigestKey: "replies", Payload: []byte("payload of " + id)}
}

func replies(ids ...string) (all []queue.Job) {
	for _, id := range ids {
		all = append(all, reply(id))
	}
	return all
}

// membersOf says what a start was: "a b c" of a digest of three.
func membersOf(info queue.Info) string {
	var ids []string
	for _, m := range info.Digest {
		ids = append(ids, m.ID)
	}
	return strings.Join(ids, " ")
}

func digestsOf(starts []queue.Info) (all []string) {
	for _, start := range starts {
		all = append(all, membersOf(start))
	}
	return all
}

// sound fails the test if anything is left in the queue, or the doctor finds something.
func sound(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	d, err := doctor.New(client, "push")
	must(t, err)
	found, err := d.Examine(t.Context())
	must(t, err)
	for _, damage := range found {
		t.Errorf("doctor: %+v", damage)
	}
	if s := stats(t, client); s.Waiting+s.Running+s.Later != 0 {
		t.Errorf("left: %+v", s)
	}
	for _, pattern := range []string{"wc:{push}:digest:*", "wc:{push}:fold:*", "wc:{push}:body:*"} {
		if keys, err := client.Keys(t.Context(), pattern).Result(); err != nil || len(keys) > 0 {
			t.Errorf("keys are left: %q, %v", keys, err)
		}
	}
}

func pauseUser(t *testing.T, client redis.UniversalClient, until time.Time) {
	t.Helper()
	must(t, newInspector(t, client, "push").Pause(t.Context(), queue.Pause{Scope: queue.ScopeUser, Tenant: "t", User: "u", Until: until}))
}

// What waits when the first gets its slot starts as one: in the order of the offers, with the payload of the newest, at the cost
// of the most costly. All end together, and each counts.
func TestADigestStartsAsOne(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		setPolicies(t, s.client, policies(queue.Policy{User: []throttle.Rule{throttle.Window(5, s.units(10))}}))
		jobs := replies("a", "b", "c", "d")
		jobs[1].Cost, jobs[2].Payload = 4, []byte(strings.Repeat("x", 10_000))
		receipts := enqueue(t, s.client, jobs...)
		for i, r := range receipts {
			if r.Status != queue.Accepted || r.Digest == "" || r.Digest != receipts[0].Digest || r.ID != jobs[i].ID || (r.Place == 1) != (i == 0) {
				t.Errorf("receipt %d: %+v", i, r)
			}
		}
		var got recorder
		payloads := make(chan string, 10)
		handler := asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			payloads <- string(task.Payload())
			return got.ProcessTask(ctx, task)
		})
		runWorker(t, s.client, handler, queue.WorkerConfig{})
		s.eventually(t, "they are done", func() bool { return stats(t, s.client).Done == 4 })
		starts := got.all()
		if len(starts) != 1 || membersOf(starts[0]) != "a b c d" || starts[0].Cost != 4 || starts[0].ID != "d" || <-payloads != "payload of d" {
			t.Fatalf("started: %+v", starts)
		}
		if p := starts[0].Digest[2].Payload; len(p) != 10_000 {
			t.Errorf("a payload of %d bytes", len(p))
		}
		if st := stats(t, s.client); st.Offered != 4 || st.Started != 1 {
			t.Errorf("%+v", st)
		}
		enqueue(t, s.client, queue.Job{Tenant: "t", User: "u", Type: "other", Cost: 2}) // of 5, 4 are spent
		s.eventually(t, "the other is done", func() bool { return got.count() == 2 })
		if at := got.all()[1].Started; s.wrong(at, starts[0].Slot.Add(s.units(10)+grace)) {
			t.Errorf("the next one started %v after the digest", at.Sub(starts[0].Slot))
		}
		s.eventually(t, "all is done", drained(t, s.client))
		sound(t, s.client)
	})
}

// Jobs without a digest key know nothing of digests, and one alone is a digest of one.
func TestADigestOfOne(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		enqueue(t, s.client, reply("a"), queue.Job{Tenant: "t", User: "u", Type: "other"})
		var got recorder
		runWorker(t, s.client, &got, queue.WorkerConfig{})
		s.eventually(t, "both are done", func() bool { return stats(t, s.client).Done == 2 })
		for _, start := range got.all() {
			if len(start.Digest) != map[string]int{"reply": 1, "other": 0}[start.Type] {
				t.Errorf("%+v", start)
			}
		}
		sound(t, s.client)
	})
}

// A full digest takes no more: the next job begins another one, which stands behind it.
func TestAFullDigest(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		setPolicies(t, s.client, policies(queue.Policy{Digest: queue.Digest{Max: 3}, User: []throttle.Rule{throttle.Spacing(s.unit)}}))
		enqueue(t, s.client, replies("a", "b", "c", "d", "e")...)
		enqueue(t, s.client, queue.Job{ID: "other", Tenant: "t", User: "u", Type: "other"})
		enqueue(t, s.client, replies("f", "g")...)
		var got recorder
		runWorker(t, s.client, &got, queue.WorkerConfig{})
		s.eventually(t, "they are done", func() bool { return stats(t, s.client).Done == 8 })
		digests, want := digestsOf(got.all()), []string{"a b c", "d e f", "", "g"}
		if !s.virtual { // one that starts late is overtaken
			slices.Sort(digests)
			slices.Sort(want)
		}
		if !slices.Equal(digests, want) {
			t.Errorf("%q", digests)
		}
		sound(t, s.client)
	})
}

// A digest waits for more members as long as its policy says, from the first and from the last; one that is full waits no longer.
func TestADigestWaits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		policy queue.Digest // in units, as the instants of offers
		offers []int
		want   string // instants of starts, and members
	}{
		"wait":             {queue.Digest{Wait: 10}, []int{0, 3, 9, 12}, "10:3 22:1"},
		"idle":             {queue.Digest{Idle: 4}, []int{0, 3, 6, 9, 20}, "13:4 24:1"},
		"idle up to wait":  {queue.Digest{Idle: 4, Wait: 8}, []int{0, 3, 6, 7, 9}, "8:4 13:1"},
		"full before":      {queue.Digest{Wait: 10, Max: 2}, []int{0, 3, 4, 20}, "3:2 14:1 30:1"},
		"idle beyond wait": {queue.Digest{Wait: 5, Idle: 9}, []int{0, 4, 6}, "5:2 11:1"},
		"neither":          {queue.Digest{}, []int{0, 3}, "0:1 3:1"},
		"one that is full": {queue.Digest{Wait: 10, Max: 1}, []int{0, 1}, "0:1 1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage{redistest.Mini(t), time.Second, true}
				test.policy.Wait *= time.Second
				test.policy.Idle *= time.Second
				setPolicies(t, s.client, policies(queue.Policy{Digest: test.policy}))
				var got recorder
				runWorker(t, s.client, &got, queue.WorkerConfig{})
				time.Sleep(time.Second)
				began := time.Now()
				for i, at := range test.offers {
					time.Sleep(time.Until(began.Add(s.units(at))))
					enqueue(t, s.client, reply(fmt.Sprint(i)))
				}
				time.Sleep(time.Minute)
				var starts []string
				for _, start := range got.all() {
					at := start.Started.Sub(began)
					if late := at - at.Truncate(s.unit); late > 5*time.Millisecond {
						t.Errorf("%v: started %v late", start.Digest, late)
					}
					starts = append(starts, fmt.Sprintf("%d:%d", at/s.unit, len(start.Digest)))
				}
				if all := strings.Join(starts, " "); all != test.want {
					t.Errorf("%s, want %s", all, test.want)
				}
				sound(t, s.client)
			})
		})
	}
}

// A digest that is due takes members until it starts, and is not put off by them: neither by one that comes before anybody has put
// it into its lane.
func TestADigestThatIsDueWaitsNoLonger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		setPolicies(t, client, policies(queue.Policy{Digest: queue.Digest{Idle: 4 * time.Second, Wait: time.Minute}}))
		began := time.Now()
		enqueue(t, client, reply("a"))
		time.Sleep(3 * time.Second)
		enqueue(t, client, reply("b"))
		time.Sleep(4 * time.Second)
		for _, id := range []string{"c", "d"} {
			enqueue(t, client, reply(id))
			later, err := newInspector(t, client, "push").Later(t.Context(), 0, 10)
			if must(t, err); len(later) != 1 || later[0].At.Sub(began) != 7*time.Second {
				t.Errorf("a digest that was due after 7s is due after %v", later[0].At.Sub(began))
			}
			time.Sleep(time.Second)
		}
		var got recorder
		runWorker(t, client, &got, queue.WorkerConfig{})
		time.Sleep(time.Second)
		if digests := digestsOf(got.all()); !slices.Equal(digests, []string{"a b c d"}) {
			t.Errorf("%q have started", digests)
		}
		sound(t, client)
	})
}

// While a digest waits for more members it blocks nobody, and one that is in its lane goes on taking them.
func TestADigestThatWaitsBlocksNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		setPolicies(t, client, policies(queue.Policy{Digest: queue.Digest{Wait: 10 * time.Second}}))
		enqueue(t, client, reply("a"))
		enqueue(t, client, queue.Job{ID: "other", Tenant: "t", User: "u", Type: "other"})
		var got recorder
		runWorker(t, client, &got, queue.WorkerConfig{})
		time.Sleep(5 * time.Second)
		if starts := got.all(); len(starts) != 1 || starts[0].ID != "other" {
			t.Fatalf("%+v", starts)
		}
		later, err := newInspector(t, client, "push").Later(t.Context(), 0, 10)
		must(t, err)
		if len(later) != 1 || later[0].ID != "a" || later[0].Type != "reply" {
			t.Errorf("later: %+v", later)
		}
		pauseUser(t, client, time.Now().Add(10*time.Second)) // it is due before
		time.Sleep(8 * time.Second)
		enqueue(t, client, reply("b"))
		time.Sleep(10 * time.Second)
		if digests := digestsOf(got.all()); !slices.Equal(digests, []string{"", "a b"}) {
			t.Errorf("%q", digests)
		}
		sound(t, client)
	})
}

func cancel(t *testing.T, inspector *queue.Inspector, id string) {
	t.Helper()
	if was, err := inspector.Cancel(t.Context(), id); err != nil || !was {
		t.Errorf("cancelled %s: %v, %v", id, was, err)
	}
}

// A failed digest comes back as it was, and jobs that are offered meanwhile are another one.
func TestADigestIsRetried(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		failures := 0
		got := recorder{then: func(_ context.Context, info queue.Info) error {
			if info.Digest[0].ID == "a" && failures < 2 {
				failures++
				return errors.New("no")
			}
			return nil
		}}
		enqueue(t, s.client, replies("a", "b")...)
		runWorker(t, s.client, &got, queue.WorkerConfig{RetryDelay: after(s.unit)})
		s.eventually(t, "it has failed", func() bool { return got.count() == 1 })
		enqueue(t, s.client, reply("c"))
		s.eventually(t, "all are done", func() bool { return stats(t, s.client).Done == 3 })
		starts := got.all()
		digests, want := digestsOf(starts), []string{"a b", "c", "a b", "a b"}
		if !s.virtual { // c may be offered when the first has its next attempt
			slices.Sort(digests)
			slices.Sort(want)
		}
		if !slices.Equal(digests, want) {
			t.Errorf("%q", digests)
		}
		sound(t, s.client)
	})
}

// A digest is dead as one, and comes back from there as one.
func TestADeadDigestIsRevived(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		fails := true
		got := recorder{then: func(context.Context, queue.Info) error {
			if fails {
				return fmt.Errorf("no: %w", asynq.SkipRetry)
			}
			return nil
		}}
		enqueue(t, s.client, replies("a", "b")...)
		runWorker(t, s.client, &got, queue.WorkerConfig{})
		inspector := newInspector(t, s.client, "push")
		s.eventually(t, "they are dead", func() bool { return stats(t, s.client).Dead == 2 })
		dead, err := inspector.Dead(t.Context(), "", 10)
		must(t, err)
		if len(dead) != 1 {
			t.Fatalf("dead: %+v", dead)
		}
		fails = false
		n, err := inspector.Revive(t.Context(), dead[0].Entry)
		must(t, err)
		if n != 1 {
			t.Errorf("%d revived", n)
		}
		s.eventually(t, "they are done", func() bool { return stats(t, s.client).Done == 2 })
		if digests := digestsOf(got.all()); !slices.Equal(digests, []string{"a b", "a b"}) {
			t.Errorf("%q", digests)
		}
		sound(t, s.client)
	})
}

// Members that are cancelled, or too late, leave the digest, each with its reason; the others start.
func TestMembersLeaveADigest(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		inspector := newInspector(t, s.client, "push")
		var got recorder
		runWorker(t, s.client, &got, queue.WorkerConfig{})
		pauseUser(t, s.client, time.Now().Add(s.units(1000)))
		jobs := replies("a", "b", "c", "d")
		jobs[2].StartBy = time.Now().Add(s.units(2))
		jobs[1].Payload = []byte(strings.Repeat("x", 10_000))
		enqueue(t, s.client, jobs...)
		cancel(t, inspector, "b")
		time.Sleep(s.units(4))
		must(t, inspector.Resume(t.Context(), queue.Pause{Scope: queue.ScopeUser, Tenant: "t", User: "u"}))
		s.eventually(t, "two are done", func() bool { return stats(t, s.client).Done == 2 })
		if digests := digestsOf(got.all()); !slices.Equal(digests, []string{"a d"}) {
			t.Errorf("%q", digests)
		}
		if reasons := reasonsOf(t, inspector); reasons["b"] != queue.ReasonCancelled || reasons["c"] != queue.ReasonExpired || len(reasons) != 2 {
			t.Errorf("%v", reasons)
		}
		if st := stats(t, s.client); st.Dropped != 2 || st.Offered != 4 {
			t.Errorf("%+v", st)
		}
		sound(t, s.client)
	})
}

func reasonsOf(t *testing.T, inspector *queue.Inspector) map[string]queue.Reason {
	t.Helper()
	drops, err := inspector.Drops(t.Context(), 1000)
	must(t, err)
	reasons := make(map[string]queue.Reason)
	for _, drop := range drops {
		if reasons[drop.ID] != "" {
			t.Errorf("%s is dropped twice", drop.ID)
		}
		reasons[drop.ID] = drop.Reason
	}
	return reasons
}

// A digest of which no member is left takes no slot.
func TestADigestOfWhichNothingIsLeft(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		setPolicies(t, s.client, policies(queue.Policy{User: []throttle.Rule{throttle.Window(1, s.units(1000))}}))
		inspector := newInspector(t, s.client, "push")
		pauseUser(t, s.client, time.Now().Add(s.units(1000)))
		jobs := replies("a", "b", "c")
		jobs[2].StartBy = time.Now().Add(s.units(2))
		enqueue(t, s.client, jobs...)
		enqueue(t, s.client, queue.Job{ID: "other", Tenant: "t", User: "u", Type: "other"})
		cancel(t, inspector, "a")
		cancel(t, inspector, "b")
		time.Sleep(s.units(4))
		var got recorder
		runWorker(t, s.client, &got, queue.WorkerConfig{})
		must(t, inspector.Resume(t.Context(), queue.Pause{Scope: queue.ScopeUser, Tenant: "t", User: "u"}))
		s.eventually(t, "the other is done", func() bool { return stats(t, s.client).Done == 1 })
		reasons := reasonsOf(t, inspector)
		if reasons["a"] != queue.ReasonCancelled || reasons["b"] != queue.ReasonCancelled || reasons["c"] != queue.ReasonExpired {
			t.Errorf("%v", reasons)
		}
		if starts := got.all(); len(starts) != 1 || starts[0].ID != "other" {
			t.Errorf("%+v", starts)
		}
		sound(t, s.client)
	})
}

// A collapse key replaces within the digest; an ID is known as long as it would be; purged members are dropped one by one.
func TestKeysOfMembers(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		inspector := newInspector(t, s.client, "push")
		pauseUser(t, s.client, time.Now().Add(s.units(1000)))
		jobs := replies("a", "b", "c", "a")
		jobs[0].CollapseKey, jobs[2].CollapseKey = "topic", "topic"
		receipts := enqueue(t, s.client, jobs...)
		if receipts[3].Status != queue.Duplicate {
			t.Errorf("%+v", receipts[3])
		}
		if reasons := reasonsOf(t, inspector); reasons["a"] != queue.ReasonCollapsed || len(reasons) != 1 {
			t.Errorf("%v", reasons)
		}
		var got recorder
		runWorker(t, s.client, &got, queue.WorkerConfig{})
		must(t, inspector.Resume(t.Context(), queue.Pause{Scope: queue.ScopeUser, Tenant: "t", User: "u"}))
		s.eventually(t, "two are done", func() bool { return stats(t, s.client).Done == 2 })
		if digests := digestsOf(got.all()); !slices.Equal(digests, []string{"b c"}) {
			t.Errorf("%q", digests)
		}
		if receipts := enqueue(t, s.client, reply("b")); receipts[0].Status != queue.Duplicate {
			t.Errorf("%+v", receipts[0])
		}
		pauseUser(t, s.client, time.Now().Add(s.units(1000)))
		enqueue(t, s.client, replies("d", "e", "f")...)
		n, err := inspector.Purge(t.Context(), "t")
		must(t, err)
		if reasons := reasonsOf(t, inspector); n != 1 || reasons["d"] != queue.ReasonPurged || reasons["f"] != queue.ReasonPurged {
			t.Errorf("%d purged, %v", n, reasons)
		}
		sound(t, s.client)
	})
}

// The digest of a worker that is lost runs again with the members that it had.
func TestADigestOfALostWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newMini(t)
		lost := make(chan struct{})
		hang := recorder{then: func(ctx context.Context, _ queue.Info) error { <-ctx.Done(); return ctx.Err() }}
		stop := runWorker(t, clientUntil(t, server, lost), &hang, queue.WorkerConfig{ShutdownTimeout: time.Nanosecond})
		client := redistest.MiniClient(t, server)
		enqueue(t, client, replies("a", "b")...)
		time.Sleep(time.Second)
		close(lost)
		stop()
		enqueue(t, client, reply("c"))
		var got recorder
		runWorker(t, client, &got, queue.WorkerConfig{})
		time.Sleep(time.Minute)
		if digests := digestsOf(got.all()); len(digests) != 2 || !slices.Contains(digests, "a b") || !slices.Contains(digests, "c") {
			t.Errorf("%q", digests)
		}
		sound(t, client)
	})
}

// Digests that start at a time of the day: all that is offered before starts together then, by the clock of the policy's zone or of
// each user. A full one waits for no time.
func TestDigestsAtATime(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		digest queue.Digest
		zone   string   // that the user has said
		waits  []string // of the jobs offered at 06:00, 07:10 and 09:00 UTC of Saturday, 2000-01-01
	}{
		"every day":                    {queue.Digest{At: "08:00"}, "", []string{"01 08:00", "01 08:00", "02 08:00"}},
		"on Mondays":                   {queue.Digest{At: "08:00", Days: "mon"}, "", []string{"03 08:00", "03 08:00", "03 08:00"}},
		"in Tokyo":                     {queue.Digest{At: "15:30", Zone: "Asia/Tokyo"}, "", []string{"01 06:30", "02 06:30", "02 06:30"}},
		"where the user is":            {queue.Digest{At: "08:00", Zone: "user"}, "Asia/Kathmandu", []string{"02 02:15", "02 02:15", "02 02:15"}},
		"where the tenant's users are": {queue.Digest{At: "08:00", Zone: "user"}, "", []string{"01 07:00", "02 07:00", "02 07:00"}},
		"of two at most":               {queue.Digest{At: "08:00", Max: 2}, "", []string{"01 07:10", "01 07:10", "02 08:00"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := redistest.Mini(t)
				setPolicies(t, client, policies(queue.Policy{Digest: test.digest, Zone: "Europe/Paris"}))
				if test.zone != "" {
					must(t, newInspector(t, client, "push").SetUser(t.Context(), "t", "u", queue.UserClock{Zone: test.zone}))
				}
				var got recorder
				begin := time.Now()
				ended := make(chan struct{})
				go func() { defer close(ended); runBriefly(t, client, &got, test.waits, begin) }()
				for i, after := range []time.Duration{6 * time.Hour, 7*time.Hour + 10*time.Minute, 9 * time.Hour} {
					time.Sleep(time.Until(begin.Add(after)))
					r := enqueue(t, client, reply(fmt.Sprint(i)))[0]
					if want := test.waits[i]; r.Start.UTC().Format("02 15:04") != want && test.digest.Max == 0 {
						t.Errorf("job %d is to start at %v, want %s", i, r.Start.UTC(), want)
					}
				}
				<-ended
				starts := make(map[string]time.Time)
				for _, s := range got.all() {
					for _, m := range s.Digest {
						starts[m.ID] = s.Started
					}
				}
				for i, want := range test.waits {
					at := starts[fmt.Sprint(i)].UTC()
					if at.Format("02 15:04") != want || at.Sub(at.Truncate(time.Minute)) > 5*time.Millisecond {
						t.Errorf("job %d starts at %v, want %s", i, at, want)
					}
				}
				sound(t, client)
			})
		})
	}
}

// runBriefly runs a worker for two minutes around each of some instants ("02 15:04" of a month).
func runBriefly(t *testing.T, client redis.UniversalClient, got *recorder, instants []string, month time.Time) {
	for _, text := range slices.Compact(slices.Sorted(slices.Values(instants))) {
		at, err := time.Parse("2006-01-02 15:04", month.Format("2006-01-")+text)
		must(t, err)
		time.Sleep(time.Until(at.Add(-time.Minute)))
		stop := runWorker(t, client, got, queue.WorkerConfig{})
		time.Sleep(2 * time.Minute)
		stop()
	}
}
