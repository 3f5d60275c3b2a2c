package store

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
)

// claimOf returns a claim of a job of user u.
func claimOf(stamp string) Claim { return Claim{Stamp: stamp, Lane: laneOf("u")} }

// hold gives a worker a claim.
func (d *desk) hold(worker string, claim Claim) {
	d.t.Helper()
	d.must(d.client.HSet(d.t.Context(), d.key.Running(worker), claim.String(), "job").Err())
}

// notices returns all notices, subjects before texts.
func (d *desk) notices() (all []string) {
	d.t.Helper()
	messages, err := d.client.XRange(d.t.Context(), d.key.Notices(), "-", "+").Result()
	d.must(err)
	for _, m := range messages {
		for _, subject := range []string{NoticeFinished, NoticeLater, NoticeRefund} {
			if text, found := m.Values[subject].(string); found {
				all = append(all, subject+" "+text)
			}
		}
	}
	return all
}

// The leader is told of a failure, and of what is to be refunded; once, although the script runs twice where its reply
// is lost.
func TestFailTellsTheLeader(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		d.hold("w", claimOf("claim"))
		f := Failure{Worker: "w", Claim: claimOf("claim"), Delay: time.Hour, Job: "job", IDs: []string{"id"}, Error: "no", Refund: "refund"}
		for i, want := range []bool{true, false} {
			if held, err := d.Fail(t.Context(), f); held != want || err != nil {
				t.Errorf("%d: held %v, %v", i, held, err)
			}
		}
		told := strings.Join(d.notices(), ", ")
		if before, after, _ := strings.Cut(told, NoticeLater+" "); before != "" || !strings.HasSuffix(after, ", !finished "+claimOf("claim").String()+", !refund refund") {
			t.Errorf("told %s", told)
		}
		meta := d.client.HGetAll(t.Context(), d.key.Meta()).Val()
		if meta["failed"] != "1" || d.client.ZCard(t.Context(), d.key.Later()).Val() != 1 || d.exists("running:w") {
			t.Errorf("%v", meta)
		}
	})
}

// A failed job whose place in Redis holds something else stays a claim, and fails again when that
// is repaired: it is not lost.
func TestFailWhereNothingCanWait(t *testing.T) {
	t.Parallel()
	for place, delay := range map[string]time.Duration{"later": time.Second, "dead": -1} {
		t.Run(place, func(t *testing.T) {
			onDesks(t, func(t *testing.T, d *desk) {
				d.hold("w", claimOf("claim"))
				d.text(place)
				f := Failure{Worker: "w", Claim: claimOf("claim"), Delay: delay, Job: "job", Error: "no", Refund: "refund"}
				if held, err := d.Fail(t.Context(), f); held || err == nil || !strings.Contains(err.Error(), place) {
					t.Errorf("held %v, %v", held, err)
				}
				if !d.exists("running:w") || len(d.notices()) > 0 || d.client.HGet(t.Context(), d.key.Meta(), "failed").Val() != "" {
					t.Error("the claim was ended")
				}
				d.must(d.client.Del(t.Context(), "wc:{q}:"+place).Err())
				if held, err := d.Fail(t.Context(), f); !held || err != nil || d.exists("running:w") {
					t.Errorf("held %v, %v", held, err)
				}
			})
		})
	}
}

// An attempt that fails when Redis is full is noted.
func TestFailInAFullRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t).Client(t)
	st, err := New(s, "q")
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{Store: st, t: t, client: s, read: "0"}
	d.hold("w", claimOf("late"))
	d.hold("w", claimOf("last"))
	d.must(s.ConfigSet(t.Context(), "maxmemory", "1mb").Err())
	for claim, delay := range map[string]time.Duration{"late": time.Hour, "last": -1} {
		if held, err := d.Fail(t.Context(), Failure{Worker: "w", Claim: claimOf(claim), Delay: delay, Job: "job", Error: "no"}); !held || err != nil {
			t.Errorf("%s: held %v, %v", claim, held, err)
		}
	}
	if s.ZCard(t.Context(), d.key.Later()).Val() != 1 || s.XLen(t.Context(), d.key.Dead()).Val() != 1 || d.exists("running:w") {
		t.Error("not noted")
	}
}

// A lock is kept and lifted by the job that has it alone, however often it says so.
func TestLock(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		for _, task := range []string{"task", "*", ""} {
			lock := "asynq:{q}:unique:" + task
			d.must(d.client.HSet(t.Context(), "asynq:{q}:t:"+task, "unique_key", lock).Err())
			d.must(d.client.Set(t.Context(), lock, task, time.Hour).Err())
			for range 2 {
				if kept, err := d.KeepLock(t.Context(), task); kept != lock || err != nil {
					t.Errorf("%q keeps %q, %v", task, kept, err)
				}
			}
			if left := d.client.PTTL(t.Context(), lock).Val(); left <= 0 || left > time.Hour {
				t.Errorf("for %v", left)
			}
			d.must(d.LiftLock(t.Context(), lock, task+"x"))
			if holder := d.client.Get(t.Context(), lock).Val(); holder != lockHolder(task) {
				t.Errorf("another one lifts it: %q", holder)
			}
			for range 2 {
				d.must(d.LiftLock(t.Context(), lock, task))
			}
			if err := d.client.Get(t.Context(), lock).Err(); err != redis.Nil {
				t.Errorf("it is not lifted: %v", err)
			}
			d.must(d.client.Set(t.Context(), lock, "another", time.Hour).Err())
			if kept, err := d.KeepLock(t.Context(), task); kept != "" || err != nil {
				t.Errorf("%q keeps %q of another one, %v", task, kept, err)
			}
		}
	})
}
