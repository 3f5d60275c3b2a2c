package runner

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// TestAnswersThatOvertake lets a worker find in Redis what the leader has answered to a
// late job, before the answer comes, or without one that comes ever. The job starts once.
func TestAnswersThatOvertake(t *testing.T) {
	for name, answers := range map[string]int{"before the answer": 1, "the answer is lost": 0, "the answer comes twice": 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := redistest.Mini(t)
				var l log
				r, old := asking(t, client, &l)

				slot := r.now() + 2000
				another := envelope.Restarted(old, slot)
				job := client.HGet(t.Context(), "wc:{q}:running:a", old).Val()
				client.HDel(t.Context(), "wc:{q}:running:a", old)
				client.HSet(t.Context(), "wc:{q}:running:a", another, job)
				reconcile := func() {
					if err := r.claims.reconcile(context.Background()); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
				}
				reconcile()
				for range answers {
					r.takeWords([]string{wordLate, old, another, text(slot), "0"})
				}
				reconcile()
				time.Sleep(time.Second)
				reconcile()
				time.Sleep(time.Second)
				if l.count() != 1 {
					t.Errorf("%d starts of one job", l.count())
				}
				if n, _ := r.claims.due(); n != 1 {
					t.Errorf("%d ends of one job are to be told", n)
				}
			})
		})
	}
}

// TestLostBeforeStart takes a job away that waits for its slot: it does not start.
func TestLostBeforeStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		var l log
		r, reply := beaten(t, client, &l)
		env := envelope.Envelope{Stamp: "35d013b37e000", Cost: 1, MaxAttempts: 3, Type: "x"}
		slot := reply.Now + 3_000_000
		claim := envelope.ClaimName(env.Stamp, slot, slot, envelope.Lane{Tenant: "t", User: "u", Priority: envelope.Normal})
		r.accept(given{claim: claim, job: env.String(), slot: slot})
		if err := r.claims.reconcile(t.Context()); err != nil { // Redis holds no such claim
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if l.count() != 0 || r.claims.count() != 0 {
			t.Errorf("%d starts, %d claims held", l.count(), r.claims.count())
		}
	})
}

// wired is such a worker as beaten, with a Redis of its own and the wire by which it reaches that.
func wired(t *testing.T, l *log) (*Runner, store.BeatReply, *wire) {
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	t.Cleanup(server.Close)
	w := newWire(server)
	client := w.client(t)
	t.Cleanup(func() { client.Close() })
	r, reply := beaten(t, client, l)
	return r, reply, w
}

// beaten is a worker that has had its first beat, and does nothing by itself.
func beaten(t *testing.T, client redis.UniversalClient, l *log) (*Runner, store.BeatReply) {
	s, err := store.New(client, "q")
	if err != nil {
		t.Fatal(err)
	}
	r := New(testConfig(t, s, "a", nil, l))
	r.outlive, r.handling = t.Context(), t.Context()
	reply, err := s.Beat(t.Context(), store.Beat{Worker: "a", Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	r.clock.observe(reply.Reading)
	return r, reply
}

// asking is such a worker with a job that has missed its slot by a second: it has asked for
// another one, and waits for the answer.
func asking(t *testing.T, client redis.UniversalClient, l *log) (r *Runner, claim string) {
	r, reply := beaten(t, client, l)
	env := envelope.Envelope{Stamp: "35d013b37e000", Cost: 1, MaxAttempts: 3, Type: "x"}
	missed := reply.Now - 1_000_000
	claim = envelope.ClaimName(env.Stamp, missed, missed, envelope.Lane{Tenant: "t", User: "u", Priority: envelope.Normal})
	client.HSet(t.Context(), "wc:{q}:running:a", claim, "."+env.String())
	r.accept(given{claim: claim, job: env.String(), slot: missed})
	synctest.Wait()
	return r, claim
}
