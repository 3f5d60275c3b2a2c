package store

import (
	"errors"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// A leader whose lease has run out goes on as long as nobody else leads, and is told.
func TestLapsed(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		f := d.lead("a")
		d.must(d.client.HSet(t.Context(), "wc:{q}:meta", "till", 5).Err())
		c := d.NewCommit()
		c.Count("", "done", 1)
		reply, err := d.Commit(t.Context(), f, c)
		if err != nil || !reply.Lapsed {
			t.Errorf("%+v, %v", reply, err)
		}
		f.Seq++
		c = d.NewCommit()
		if reply, err = d.Commit(t.Context(), f, c); err != nil || reply.Lapsed {
			t.Errorf("the lease was not renewed: %+v, %v", reply, err)
		}
		if through := d.client.HGet(t.Context(), "wc:{q}:meta", "notice").Val(); through != f.Notice {
			t.Errorf("notices through %q, want %q", through, f.Notice)
		}
		d.must(d.Resign(t.Context(), "0:nobody", ""))
		if meta, _ := d.Meta(t.Context()); meta.Till < reply.Now {
			t.Error("somebody else resigned for the leader")
		}
		other, err := d.Lead(t.Context(), "b", time.Minute, "")
		if err != nil || other.Token != "" {
			t.Errorf("two lead: %+v, %v", other, err)
		}
		again, err := d.Lead(t.Context(), "a", time.Minute, f.Token)
		if err != nil || again.Token == "" || again.Token == f.Token || again.Seq != f.Seq || again.Notice != f.Notice {
			t.Errorf("leading on: %+v, %v", again, err)
		}
		f.Seq++
		if _, err := d.Commit(t.Context(), f, d.NewCommit()); !errors.Is(err, ErrDeposed) {
			t.Errorf("a commit under the old token: %v", err)
		}
		if repeated, err := d.Lead(t.Context(), "a", time.Minute, f.Token); err != nil || repeated.Token != again.Token {
			t.Errorf("the same request again: %+v, %v; want the same token %s", repeated, err, again.Token)
		}
		if other, err := d.Lead(t.Context(), "b", time.Minute, f.Token); err != nil || other.Token != "" {
			t.Errorf("another worker leads on with the token: %+v, %v", other, err)
		}
		older := f.Token
		if again, err = d.Lead(t.Context(), "a", time.Minute, again.Token); err != nil || again.Token == "" {
			t.Errorf("leading on once more: %+v, %v", again, err)
		}
		if stale, err := d.Lead(t.Context(), "a", time.Minute, older); err != nil || stale.Token != "" {
			t.Errorf("leading on with a token of before: %+v, %v", stale, err)
		}
		d.must(d.Resign(t.Context(), again.Token, "b"))
		if message, _, _ := d.Message(t.Context(), "b", time.Second); message != "!lead" {
			t.Errorf("the successor is told %q", message)
		}
		if other, _ = d.Lead(t.Context(), "b", time.Minute, ""); other.Token == "" || other.Token == again.Token {
			t.Errorf("after the leader resigned: %+v", other)
		}
	})
}

// An epoch that Redis has forgotten is given again, and a token with it is not the same.
func TestTokensAreNotGivenTwice(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		old := d.lead("a")
		d.must(d.client.FlushAll(t.Context()).Err())
		fresh := d.lead("b")
		if _, err := d.Commit(t.Context(), old, d.NewCommit()); !errors.Is(err, ErrDeposed) || old.Token == fresh.Token {
			t.Errorf("%v; tokens %s and %s", err, old.Token, fresh.Token)
		}
	})
}

func (d *desk) beat(worker string, leased bool, lease time.Duration) BeatReply {
	d.t.Helper()
	reply, err := d.Beat(d.t.Context(), Beat{Worker: worker, Lease: lease, Leased: leased})
	d.must(err)
	return reply
}

// Leases hold after a time in which nobody reached Redis; a lost one is not given again
// to a worker that has nothing.
func TestLeases(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		first := d.beat("a", false, 10*time.Second)
		if leases, _ := d.Leases(t.Context()); !first.Alive || leases["a"] != first.Now+10_000_000 {
			t.Errorf("%+v, leases %v", first, leases)
		}
		lead := d.lead("c")
		takeBack := func(at int64) (amnesty bool, err error) {
			found, err := d.Reapable(t.Context(), "nobody", nil)
			d.must(err)
			amnesty = found.Amnesty(at, 10*time.Second)
			c := d.NewCommit()
			c.Expired("nobody", 10*time.Second)
			_, err = d.Commit(t.Context(), lead, c)
			if err == nil {
				lead.Seq++
			}
			return amnesty, err
		}
		if amnesty, err := takeBack(first.Now); amnesty || err != nil {
			t.Errorf("amnesty %v, commit: %v", amnesty, err)
		}
		d.must(d.client.HSet(t.Context(), "wc:{q}:meta", "beat", first.Now-60_000_000).Err())
		var differs *DiffersError
		if amnesty, err := takeBack(first.Now); !amnesty || !errors.As(err, &differs) {
			t.Errorf("amnesty %v before the first beat after an outage, commit: %v", amnesty, err)
		}
		second := d.beat("b", false, 10*time.Second)
		if amnesty, err := takeBack(second.Now); !amnesty || !errors.As(err, &differs) {
			t.Errorf("amnesty %v after an outage, commit: %v", amnesty, err)
		}
		later, err := d.Reapable(t.Context(), "nobody", nil)
		if d.must(err); !later.Amnesty(second.Now+2_000_000, 10*time.Second) {
			t.Error("the amnesty does not last")
		}
		d.must(d.client.HSet(t.Context(), "wc:{q}:meta", "amnesty", second.Now).Err())
		if amnesty, err := takeBack(second.Now); amnesty || err != nil {
			t.Errorf("amnesty %v after a lease, commit: %v", amnesty, err)
		}
		d.must(d.client.ZRem(t.Context(), "wc:{q}:workers", "a").Err())
		if d.beat("a", true, time.Second).Alive {
			t.Error("a lease that was lost counts as renewed")
		}
		d.must(d.client.ZRem(t.Context(), "wc:{q}:workers", "b").Err())
		d.must(d.client.HSet(t.Context(), "wc:{q}:running:b", "claim", "job").Err())
		if reply := d.beat("b", true, time.Second); !reply.Alive || reply.Held != 1 {
			t.Errorf("its claims are still there: %+v", reply)
		}
	})
}

// Whoever runs when Redis gets full keeps its lease, and its ends are told.
func TestLeasesHoldInAFullRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t).Client(t)
	st, err := New(s, "q")
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{Store: st, t: t, client: s, read: "0"}
	d.beat("a", false, 200*time.Millisecond)
	d.must(s.HSet(t.Context(), "wc:{q}:running:a", "claim", "job").Err())
	d.must(s.ConfigSet(t.Context(), "maxmemory", "1mb").Err())
	reply := d.beat("a", true, time.Hour)
	if leases, _ := d.Leases(t.Context()); !reply.Alive || leases["a"] < reply.Now+3_599_000_000 {
		t.Errorf("%+v, leases %v", reply, leases)
	}
	if _, err := d.Ack(t.Context(), Ack{Worker: "a", Claims: []Claim{{Stamp: "claim"}}}); err != nil || len(d.claimed("a")) > 0 {
		t.Errorf("ack: %v, claims %v", err, d.claimed("a"))
	}
}

// A worker that was given something stays in the fleet, and one that has left is given
// nothing: nobody would take it back.
func TestLeave(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		stamp := d.offer("u", nil)
		d.beat("b", false, time.Minute)
		f := d.lead("a")
		c := d.NewCommit()
		claim := d.take(c, "b", "u", stamp, 5)
		c.Lives("b")
		_, err := d.Commit(t.Context(), f, c)
		d.must(err)
		if left, err := d.Leave(t.Context(), "b"); left || err != nil {
			t.Errorf("left %v with a claim, %v", left, err)
		}
		if leases, _ := d.Leases(t.Context()); leases["b"] == 0 || !d.exists("mailbox:b") || !d.exists("worker:b") {
			t.Error("it is gone")
		}
		_, err = d.Ack(t.Context(), Ack{Worker: "b", Claims: []Claim{claim}})
		d.must(err)
		if left, err := d.Leave(t.Context(), "b"); !left || err != nil || d.exists("mailbox:b") || d.exists("worker:b") {
			t.Errorf("left %v, %v", left, err)
		}
		stamp = d.offer("u", id("job"))
		f.Seq++
		c = d.NewCommit()
		d.take(c, "b", "u", stamp, 6)
		c.Lives("b")
		var differs *DiffersError
		if _, err := d.Commit(t.Context(), f, c); !errors.As(err, &differs) || d.lane("u") != "job" {
			t.Errorf("%v; the lane holds %q", err, d.lane("u"))
		}
	})
}

// A worker that lost its claims to another one can do nothing with them, whatever Redis
// has forgotten meanwhile.
func TestAnOutdatedClaim(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		stamp := d.offer("u", func(e *envelope.Envelope) { e.ID, e.Spilled = "job", "body1" })
		job := d.client.LIndex(t.Context(), "wc:{q}:lane:t:u", 0).Val()
		f := d.lead("x")
		c := d.NewCommit()
		old := envelope.Claim{Stamp: stamp, Lane: laneOf("u"), Slot: 5, Spent: 5}
		c.Take(laneOf("u"), []Leaving{{stamp, "a", old}})
		_, err := d.Commit(t.Context(), f, c)
		d.must(err)
		// A replica is promoted that had not got the commit; another worker gets the job.
		d.must(d.client.Del(t.Context(), "wc:{q}:running:a").Err())
		d.must(d.client.RPush(t.Context(), "wc:{q}:lane:t:u", job).Err())
		d.must(d.client.HSet(t.Context(), "wc:{q}:meta", "seq", 0, "epoch", 0).Err())
		f = d.lead("y")
		c = d.NewCommit()
		for i, worker := range []string{"b", "a"} { // and even the same one
			claim := envelope.Claim{Stamp: stamp, Lane: laneOf("u"), Slot: int64(5 + 2*i), Spent: int64(5 + 2*i)}
			c.Claim(worker, claim, job)
		}
		c.Take(laneOf("u"), leaving(stamp))
		_, err = d.Commit(t.Context(), f, c)
		d.must(err)
		before := d.all()
		_, err = d.Ack(t.Context(), Ack{Worker: "a", Claims: []Claim{old}, Payload: "body1"})
		d.must(err)
		if held, err := d.Fail(t.Context(), Failure{Worker: "a", Claim: old, Delay: 0, Job: job, IDs: []string{"job"}, Error: "no", Refund: "x"}); held || err != nil {
			t.Errorf("fail: %v, %v", held, err)
		}
		after := d.all()
		for key := range before {
			if before[key] != after[key] && key != "wc:{q}:meta" { // which counts 0 done
				t.Errorf("%s was %s, is %s", key, before[key], after[key])
			}
		}
		if n := d.client.HGet(t.Context(), "wc:{q}:meta", "done").Val(); n != "0" && n != "" {
			t.Errorf("%s done", n)
		}
	})
}
