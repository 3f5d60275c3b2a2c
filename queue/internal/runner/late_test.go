package runner

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A job that has missed its slot is returned, and starts only under the claim that it gets for
// another one, whatever Redis says meanwhile.
func TestALateJobIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		var l log
		r, old := missing(t, client, &l)
		reconcile := func() {
			if err := r.claims.reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		reconcile() // the leader has not opened the letter yet
		_, letters, err := r.store.ReadMail(t.Context(), "0", time.Second)
		if err != nil || len(letters) != 2 { // the first says that the worker has come
			t.Fatalf("letters %v, %v", letters, err)
		}
		q, ok := readRequest(letters[1])
		if !ok || q.claim != old || q.kind != returnLate || q.late < 1_000_000 || q.late > 1_100_000 {
			t.Errorf("returned as %+v", q)
		}
		if late := r.delays.p99(); late < time.Second {
			t.Errorf("the worker's starts count as %v late at most", late)
		}
		job := client.HGet(t.Context(), "wc:{q}:running:a", old.String()).Val()
		client.HDel(t.Context(), "wc:{q}:running:a", old.String())
		slot := r.now() + 2000
		another := envelope.Claim{Stamp: old.Stamp, Lane: old.Lane, Slot: slot, Spent: slot}
		client.HSet(t.Context(), "wc:{q}:running:a", another.String(), job)
		reconcile()
		r.takeWords([]string{wordJob, another.String(), job[1:]})
		reconcile()
		time.Sleep(time.Second)
		if l.count() != 1 {
			t.Errorf("%d starts of one job", l.count())
		}
		if n, _ := r.claims.due(); n != 1 {
			t.Errorf("%d ends of one job are to be told", n)
		}
	})
}

// A worker to which all jobs come late starts them nevertheless: each one that comes back gets a
// slot that lies further ahead.
func TestAWorkerThatIsAlwaysLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.handler = func(string, Attempt) Outcome { return Outcome{} }
		leader := s.join("a")
		time.Sleep(3 * time.Second)
		w := s.join("b")
		time.Sleep(3 * time.Second)
		w.wire.intercept(func(cmd redis.Cmder, do func() error) error {
			err := do()
			if cmd.Name() == "blpop" {
				time.Sleep(40 * time.Millisecond)
			}
			return err
		})
		for leader.places.take() { // all its places are taken
		}
		s.offer("u", 20)
		time.Sleep(10 * time.Second)
		if n := s.attempts(); n != 20 {
			t.Errorf("%d of 20 jobs have started", n)
		}
		for range leader.places.all() {
			leader.places.give()
		}
		s.end()
	})
}

// TestLostBeforeStart takes a job away that waits for its slot: it does not start.
func TestLostBeforeStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		var l log
		r, reply := beaten(t, client, &l)
		env := envelope.Envelope{Stamp: "35d013b37e000", Cost: 1, MaxAttempts: 3, Type: "x"}
		slot := reply.Now + 3_000_000
		claim := envelope.Claim{Stamp: env.Stamp, Lane: envelope.Lane{Tenant: "t", User: "u", Priority: envelope.Normal}, Slot: slot, Spent: slot}
		r.accept(given{claim: claim, job: env.String()})
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

// missing is such a worker with a job that has missed its slot by a second.
func missing(t *testing.T, client redis.UniversalClient, l *log) (r *Runner, claim envelope.Claim) {
	r, reply := beaten(t, client, l)
	env := envelope.Envelope{Stamp: "35d013b37e000", Cost: 1, MaxAttempts: 3, Type: "x"}
	missed := reply.Now - 1_000_000
	claim = envelope.Claim{Stamp: env.Stamp, Lane: envelope.Lane{Tenant: "t", User: "u", Priority: envelope.Normal}, Slot: missed, Spent: missed}
	client.HSet(t.Context(), "wc:{q}:running:a", claim.String(), "."+env.String())
	r.accept(given{claim: claim, job: env.String()})
	synctest.Wait()
	return r, claim
}
