package queue

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/throttle"
)

// A hand is a worker that does only what the test says.
type hand struct {
	t       *testing.T
	scripts *scripts
	client  *Client
	pulls   *int // how many there were
}

func newHand(t *testing.T, client redis.UniversalClient, p Policy) hand {
	t.Helper()
	policies := Policies{Default: "p", Policies: map[string]Policy{"p": p}}
	if err := NewInspector(client, "q").SetPolicies(t.Context(), policies); err != nil {
		t.Fatal(err)
	}
	return hand{t, newScripts(client, "q"), NewClient(client, "q"), new(int)}
}

func (h hand) offer(users ...string) {
	h.t.Helper()
	for _, user := range users {
		if _, err := h.client.Enqueue(h.t.Context(), Job{Tenant: "t", User: user, Type: "x"}); err != nil {
			h.t.Fatal(err)
		}
	}
}

func (h hand) pull(lead, lease time.Duration) []claim {
	h.t.Helper()
	*h.pulls++
	return h.pullAs(*h.pulls, *h.pulls-1, lead, lease)
}

// pullAs pulls with a number of this pull and of the last one that was answered.
func (h hand) pullAs(number, heard int, lead, lease time.Duration) []claim {
	h.t.Helper()
	reply, err := h.scripts.run(h.t.Context(), h.scripts.pull, "hand", 10, lead.Microseconds(), lease.Microseconds(), number, heard).Slice()
	if err != nil {
		h.t.Fatal(err)
	}
	jobs, _, _, err := readPull(reply)
	if err != nil {
		h.t.Fatal(err)
	}
	return jobs
}

func (h hand) outcome(script *redis.Script, args ...any) int64 {
	h.t.Helper()
	reply, err := numbers(h.scripts.run(h.t.Context(), script, args...), 2)
	if err != nil {
		h.t.Fatal(err)
	}
	return reply[1]
}

func (h hand) stats() Stats {
	h.t.Helper()
	s, err := NewInspector(h.scripts.client, "q").Stats(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	return s
}

const lease = 15 * time.Second

func TestLateStartIsAdmittedWhereItBreaksNothing(t *testing.T) {
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		h := newHand(t, client, Policy{User: []throttle.Rule{throttle.Spacing(50 * time.Millisecond)}})
		h.offer("u", "u")
		jobs := h.pull(10*time.Millisecond, lease)
		if len(jobs) != 1 {
			t.Fatalf("%d jobs, want 1", len(jobs))
		}
		if got := h.outcome(h.scripts.admit, 0, jobs[0].token, micros(jobs[0].slot)); got != 1 {
			t.Errorf("alone and late: outcome %d, want 1", got)
		}
		// Its slot has moved to now: the next one keeps its distance to that.
		log := client.Get(t.Context(), "wc:{q}:state:u:t:u").Val()
		if len(log) != 16 || log <= strconv.FormatInt(jobs[0].slot.UnixMicro(), 10) {
			t.Errorf("log %q, want one slot after %d", log, jobs[0].slot.UnixMicro())
		}
	})
}

func TestLateStartGoesBackWhereItWouldBreakARule(t *testing.T) {
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		// With the grace, the user's two jobs get slots 25 ms apart, both within the lead.
		h := newHand(t, client, Policy{User: []throttle.Rule{throttle.Spacing(20 * time.Millisecond)}})
		h.offer("u", "u")
		jobs := h.pull(time.Second, lease)
		if len(jobs) != 2 {
			t.Fatalf("%d jobs, want 2", len(jobs))
		}
		// The first is late, and the second's slot lies ahead: too close for it now.
		if got := h.outcome(h.scripts.admit, 0, jobs[0].token, micros(jobs[0].slot)); got != 2 {
			t.Errorf("late before another's slot: outcome %d, want 2", got)
		}
		if s := h.stats(); s.Waiting != 1 || s.Running != 1 || s.Started != 1 {
			t.Errorf("%+v, want it to wait again", s)
		}
		if got := h.outcome(h.scripts.admit, 0, jobs[0].token, micros(jobs[0].slot)); got != 0 {
			t.Errorf("asked again: outcome %d, want the claim to be gone", got)
		}
		again := h.pull(time.Second, lease)
		if len(again) != 1 || again[0].job.ID != jobs[0].job.ID || again[0].slot.Sub(jobs[1].slot) < 25*time.Millisecond {
			t.Errorf("pulled again: %+v, want the first job, 25 ms after %v", again, jobs[1].slot)
		}
	})
}

func TestATokenIsOneClaim(t *testing.T) {
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		h := newHand(t, client, Policy{})
		h.offer("u")
		old := h.pull(0, time.Microsecond)[0]
		redistest.Eventually(t, time.Second, "the lease has expired and the job is pulled again", func() bool {
			jobs := h.pull(0, time.Hour)
			return len(jobs) == 1 && jobs[0].job.ID == old.job.ID && jobs[0].failures == 1
		})
		if got := h.outcome(h.scripts.fail, old.token, 0, "no"); got != 0 {
			t.Errorf("fail with a lost claim: outcome %d, want 0", got)
		}
		if got := h.outcome(h.scripts.admit, 0, old.token, 0); got != 0 {
			t.Errorf("admit with a lost claim: outcome %d, want 0", got)
		}
		for name, script := range map[string]*redis.Script{"ack": h.scripts.ack, "release": h.scripts.release} {
			args := map[string][]any{"ack": {old.token}, "release": {"hand", old.token}}[name]
			if err := h.scripts.run(t.Context(), script, args...).Err(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		reply, err := h.scripts.run(t.Context(), h.scripts.renew, int64(1e6), old.token).Slice()
		if err != nil || len(reply) != 2 || reply[1] != old.token {
			t.Errorf("renew: %v, %v, want the token back as lost", reply, err)
		}
		if s := h.stats(); s.Running != 1 || s.Done != 0 || s.Failed != 1 {
			t.Errorf("%+v: a lost claim changes nothing", s)
		}
	})
}

func TestReleaseGivesTheSlotBack(t *testing.T) {
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		h := newHand(t, client, Policy{
			Tenant: []throttle.Rule{throttle.Leak(1, time.Hour)},
			User:   []throttle.Rule{throttle.Window(1, time.Hour)},
		})
		h.offer("u")
		for range 3 {
			jobs := h.pull(0, lease)
			if len(jobs) != 1 {
				t.Fatalf("%d jobs, want the same one again", len(jobs))
			}
			if err := h.scripts.run(t.Context(), h.scripts.release, "hand", jobs[0].token).Err(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestALostReplyLosesNothing(t *testing.T) {
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		h := newHand(t, client, Policy{User: []throttle.Rule{throttle.Window(3, time.Hour)}})
		h.offer("u", "u", "u", "u")
		first := h.pullAs(7, 6, time.Millisecond, lease)
		again := h.pullAs(8, 6, time.Millisecond, lease)
		if len(first) != 3 || len(again) != 3 || first[0].job.ID != again[0].job.ID || first[2].job.ID != again[2].job.ID {
			t.Errorf("pulled %d and, asked again, %d jobs; want the same three", len(first), len(again))
		}
		if s := h.stats(); s.Running != 3 || s.Waiting != 1 || s.Started != 3 || s.Failed != 0 {
			t.Errorf("%+v, want three running, never failed", s)
		}
		if next := h.pullAs(9, 8, time.Millisecond, lease); len(next) != 0 {
			t.Errorf("%d jobs more, want none", len(next))
		}
	})
}

// A pull that was held up on its way arrives when the worker has long sent another one,
// and runs what that brought: it takes nothing, and hands nothing back.
func TestALatePullDoesNothing(t *testing.T) {
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		h := newHand(t, client, Policy{})
		h.offer("u")
		if jobs := h.pullAs(8, 6, 0, lease); len(jobs) != 1 {
			t.Fatalf("%d jobs, want 1", len(jobs))
		}
		h.offer("v")
		if jobs := h.pullAs(7, 6, 0, lease); len(jobs) != 0 {
			t.Errorf("%d jobs went to nobody", len(jobs))
		}
		if s := h.stats(); s.Running != 1 || s.Waiting != 1 {
			t.Errorf("%+v, want one running and one waiting", s)
		}
		if jobs := h.pullAs(9, 8, 0, lease); len(jobs) != 1 {
			t.Errorf("then %d jobs, want the other one", len(jobs))
		}
		if jobs := h.pullAs(10, 9, 0, lease); len(jobs) != 0 {
			t.Errorf("then %d jobs, want none", len(jobs))
		}
		h.offer("w")
		if jobs := h.pullAs(10, 8, 0, lease); len(jobs) != 0 {
			t.Errorf("after a pull that took nothing, %d jobs went to nobody", len(jobs))
		}
	})
}

// The question whether a late job may start is asked again when the answer is late. The
// first one may arrive when the job runs already.
func TestALateQuestionMovesNothing(t *testing.T) {
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		h := newHand(t, client, Policy{User: []throttle.Rule{throttle.Spacing(20 * time.Millisecond)}})
		h.offer("u", "u")
		job := h.pull(0, lease)[0]
		if got := h.outcome(h.scripts.admit, 0, job.token, micros(job.slot)); got != 1 {
			t.Fatalf("outcome %d, want 1", got)
		}
		if next := h.pull(time.Second, lease); len(next) != 1 {
			t.Fatalf("%d jobs, want the second, which leaves the first no room to move", len(next))
		}
		if got := h.outcome(h.scripts.admit, 0, job.token, micros(job.slot)); got != 1 {
			t.Errorf("asked again: outcome %d, want 1", got)
		}
		if s := h.stats(); s.Running != 2 || s.Waiting != 0 {
			t.Errorf("%+v, want both running", s)
		}
	})
}

// Whoever runs when Redis gets full keeps its lease.
func TestLeasesHoldInAFullRedis(t *testing.T) {
	client := redistest.Start(t).Client(t)
	h := newHand(t, client, Policy{})
	h.offer("u")
	const short = 200 * time.Millisecond
	job := h.pull(0, short)[0]
	if err := client.ConfigSet(t.Context(), "maxmemory", "1mb").Err(); err != nil {
		t.Fatal(err)
	}
	reply, err := h.scripts.run(t.Context(), h.scripts.renew, time.Hour.Microseconds(), job.token).Slice()
	if err != nil || len(reply) != 1 {
		t.Errorf("renewing: %v, %v", reply, err)
	}
	if left := client.ZScore(t.Context(), "wc:{q}:leases", job.token).Val(); left < float64(job.slot.Add(time.Hour).UnixMicro()) {
		t.Errorf("the lease ends %v", time.UnixMicro(int64(left)))
	}
}

func TestLeasesHoldThroughAnOutage(t *testing.T) {
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		h := newHand(t, client, Policy{})
		h.offer("u")
		const short = 300 * time.Millisecond
		if len(h.pull(0, short)) != 1 {
			t.Fatal("nothing to pull")
		}
		// Nobody reaches Redis for longer than the lease.
		beat := time.Now().Add(-time.Hour).UnixMicro()
		client.HSet(t.Context(), "wc:{q}:pulse", "beat", beat)
		client.ZAdd(t.Context(), "wc:{q}:leases", redis.Z{Score: float64(beat), Member: "1"})
		if n := len(h.pull(0, short)); n != 0 {
			t.Errorf("%d jobs taken back just after an outage, want none", n)
		}
		redistest.Eventually(t, 5*time.Second, "the amnesty is over", func() bool { return len(h.pull(0, short)) == 1 })
	})
}

func FuzzEnvelope(f *testing.F) {
	const stamp = "63d2f3e1a5c01"
	f.Add("t:u", stamp+string(seal(Job{Type: "x", Payload: []byte("p"), Headers: map[string]string{"a": "b"}})))
	f.Add("t:u", stamp+string(seal(Job{
		ID: "a: b", Cost: 3, Priority: High, MaxRetry: -1, CollapseKey: "k", Deadline: time.UnixMicro(5), Timeout: time.Second,
	})))
	f.Add("", "")
	f.Add("a:b", stamp+"+f2:i7 \xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
	f.Fuzz(func(t *testing.T, lane, text string) {
		e, err := openEnvelope(lane, text)
		if err != nil {
			return
		}
		again, err := openEnvelope(lane, text[:13]+string(seal(e.job)))
		if e.failures = 0; err != nil || !cmp.Equal(again.job, e.job) {
			t.Errorf("%q became %+v, then %+v, %v", text, e.job, again, err)
		}
	})
}

func FuzzEscape(f *testing.F) {
	f.Add("a:b", "a%3Ab")
	f.Fuzz(func(t *testing.T, a, b string) {
		if unescape(escape(a)) != a {
			t.Errorf("%q became %q", a, unescape(escape(a)))
		}
		if (a == b) != (escape(a) == escape(b)) {
			t.Errorf("%q and %q meet", a, b)
		}
		if strings.ContainsAny(escape(a), ": ") {
			t.Errorf("%q holds a separator", escape(a))
		}
	})
}

func TestClock(t *testing.T) {
	c := newRedisClock()
	base := time.Now()
	at := func(d time.Duration) time.Time { return base.Add(d) }
	redisTime := time.UnixMicro(1_700_000_000_000_000)
	check := func(what string, want time.Time) {
		t.Helper()
		now, _ := c.now()
		if diff := now.Sub(want.Add(time.Since(base))).Abs(); diff > 2*time.Millisecond {
			t.Errorf("%s: off by %v", what, diff)
		}
	}
	c.observe(at(0), at(100*time.Millisecond), redisTime)
	check("a slow reply proves only that it was then when it arrived", redisTime.Add(-100*time.Millisecond))
	c.observe(at(100*time.Millisecond), at(101*time.Millisecond), redisTime.Add(50*time.Millisecond))
	check("a worse bound that is possible changes nothing much", redisTime.Add(-51*time.Millisecond))
	c.observe(at(0), at(time.Millisecond), redisTime)
	check("a quick reply is better", redisTime)
	c.observe(at(0), at(time.Millisecond), redisTime.Add(-time.Hour))
	check("Redis's clock was set back", redisTime.Add(-time.Hour))
	c.observe(at(0), at(time.Millisecond), redisTime.Add(time.Hour))
	check("and forward", redisTime.Add(time.Hour))
}
