package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
)

// What digests are made of under fire.
const (
	digestUsers = 100
	digestKeys  = 2
	digestMax   = 6
	digestWait  = 1200 * time.Millisecond
	digestIdle  = 400 * time.Millisecond
	digestLease = 2 * time.Second
)

// A digestRun is one run of a queue of digests.
type digestRun struct {
	t         *testing.T
	offered   map[string][]string // lane and key → IDs, in the order of their offers
	cancelled map[string]bool
	late      map[string]bool // may be too late
	kills     []time.Time
}

// TestDigestsUnderKills lets three workers run digests while workers are killed: each job ends in one digest, which is run again
// only after a kill; their order is kept, none is over its capacity, and none starts before its policy says.
func TestDigestsUnderKills(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	jobs := int(setting(t, "WATERCLOCK_DIGEST_JOBS", int64(sample.Size(0, 4000, 10_000))))
	server := redistest.Start(t)
	client := server.Client(t)
	inspector := newInspector(t, client, queueName)
	err := inspector.SetPolicies(t.Context(), queue.Policies{Default: "p", Policies: map[string]queue.Policy{"p": {
		Digest: queue.Digest{Max: digestMax, Wait: digestWait, Idle: digestIdle}, UserConcurrency: queue.Concurrency{Jobs: 1},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	c := newCrew(t, settings{Redis: server.URL(), Queue: queueName, Lease: digestLease, Usual: 20 * time.Millisecond, Long: 100 * time.Millisecond})
	for range 3 {
		c.hire()
	}
	c.wait()
	d := &digestRun{t: t, offered: make(map[string][]string), cancelled: make(map[string]bool), late: make(map[string]bool)}
	done := make(chan struct{})
	go func() { defer close(done); d.offer(newClient(t, client, queueName), inspector, jobs) }()
	for n := 0; ; n++ {
		select {
		case <-done:
		case <-time.After(5 * time.Second):
			d.kills = append(d.kills, c.kill(c.members[n%len(c.members)]))
			c.hire()
			continue
		}
		break
	}
	redistest.Eventually(t, time.Minute, "all has ended", func() bool {
		s, err := inspector.Stats(t.Context())
		return err == nil && s.Waiting+s.Running+s.Later == 0
	})
	stats, err := inspector.Stats(t.Context())
	if err != nil || int(stats.Offered) != jobs || stats.Done+stats.Dropped != stats.Offered {
		t.Errorf("%+v, %v", stats, err)
	}
	for len(c.members) > 0 {
		c.stop(c.members[0])
	}
	d.judge(readJournals(t, c.journals()), d.dropped(inspector))
	redistest.Eventually(t, 10*time.Second, "no key of a digest is left", func() bool {
		return len(client.Keys(t.Context(), "wc:{"+queueName+"}:digest:*").Val())+len(client.Keys(t.Context(), "wc:{"+queueName+"}:fold:*").Val()) == 0
	})
}

// offer offers jobs in bursts. It cancels some of them, and some have little time.
func (d *digestRun) offer(client *queue.Client, inspector *queue.Inspector, jobs int) {
	rng := rand.New(rand.NewPCG(3, 9))
	for n := 0; n < jobs; {
		var batch []queue.Job
		for range min(1+rng.IntN(12), jobs-n) {
			j := queue.Job{
				ID: fmt.Sprint("job-", n), Tenant: "t", User: fmt.Sprint("u", rng.IntN(digestUsers)), Type: "reply", DigestKey: fmt.Sprint("k", rng.IntN(digestKeys)),
			}
			if n%50 == 7 { // it is too late when its digest is due, unless that is full before
				j.StartBy, d.late[j.ID] = time.Now().Add(digestIdle/2), true
			}
			batch = append(batch, j)
			n++
		}
		receipts, err := client.Enqueue(d.t.Context(), batch...)
		if err != nil {
			d.t.Error(err)
			return
		}
		for i, r := range receipts {
			if r.Status != queue.Accepted || r.Digest == "" {
				d.t.Errorf("%s: %+v", batch[i].ID, r)
			}
			lane := batch[i].User + " " + batch[i].DigestKey
			d.offered[lane] = append(d.offered[lane], r.ID)
			if strings.HasSuffix(r.ID, "33") {
				was, err := inspector.Cancel(d.t.Context(), r.ID)
				if err != nil {
					d.t.Error(err)
				}
				d.cancelled[r.ID] = was
			}
		}
		<-time.After(time.Duration(rng.IntN(40)) * time.Millisecond)
	}
}

// dropped returns why jobs were dropped.
func (d *digestRun) dropped(inspector *queue.Inspector) map[string]queue.Reason {
	drops, err := inspector.Drops(d.t.Context(), 100_000)
	if err != nil {
		d.t.Fatal(err)
	}
	of := make(map[string]queue.Reason)
	for _, drop := range drops {
		if of[drop.ID] != "" {
			d.t.Errorf("%s was dropped twice", drop.ID)
		}
		of[drop.ID] = drop.Reason
	}
	return of
}

// judge checks what became of all jobs.
func (d *digestRun) judge(executions []*execution, dropped map[string]queue.Reason) {
	t := d.t
	ran, again := make(map[string]string), 0 // ID → its digest
	last := make(map[string]int)             // lane and key → place of the last one that ran
	sizes, delays := 0, []time.Duration(nil)
	for _, e := range executions {
		var ids []string
		for _, p := range e.Digest {
			ids = append(ids, p.ID)
		}
		digest := strings.Join(ids, " ")
		if len(ids) == 0 || len(ids) > digestMax {
			t.Errorf("a digest of %d: %s", len(ids), digest)
			continue
		}
		if ran[ids[0]] == digest {
			again++
			if !d.killedBefore(e.began) {
				t.Errorf("run again without a kill: %s", digest)
			}
			continue
		}
		for _, id := range ids {
			if ran[id] != "" {
				t.Errorf("%s ran in %q and in %q", id, ran[id], digest)
			}
			if ran[id] = digest; dropped[id] != "" {
				t.Errorf("%s ran, and was dropped: %s", id, dropped[id])
			}
		}
		sizes++
		whole := d.inOrder(e, ids, last, dropped)
		if whole && !d.killedBefore(e.Slot) {
			delays = append(delays, e.Slot.Sub(freeAt(executions, e, due(e))))
		}
	}
	for lane, ids := range d.offered {
		for _, id := range ids {
			if ran[id] == "" && dropped[id] == "" {
				t.Errorf("%s of %s neither ran nor was dropped", id, lane)
			}
		}
	}
	for id, was := range d.cancelled {
		if was != (dropped[id] == queue.ReasonCancelled) {
			t.Errorf("%s: cancelled %v, dropped as %q", id, was, dropped[id])
		}
	}
	for id, reason := range dropped {
		if reason != queue.ReasonCancelled && !(reason == queue.ReasonExpired && d.late[id]) {
			t.Errorf("%s was dropped as %q", id, reason)
		}
	}
	slices.Sort(delays)
	if n := len(delays); n == 0 || delays[0] < 0 { // how late they are, virtual time knows: this machine may be busy
		t.Errorf("%d digests; the first slot is %v after it was due", n, delays[:min(1, n)])
	} else {
		t.Logf("%d jobs, %d dropped; %d digests, %d run again after %d kills; of %d without a kill before, slots are %v to %v after they were due, half of them %v, p99 %v",
			len(ran), len(dropped), sizes, again, len(d.kills), n, delays[0], delays[n-1], delays[n/2], delays[n*99/100])
	}
}

// inOrder checks that a digest has members of one key, in the order of their offers, and comes after the one before. It reports
// whether nobody has left it.
func (d *digestRun) inOrder(e *execution, ids []string, last map[string]int, dropped map[string]queue.Reason) (whole bool) {
	for lane, all := range d.offered {
		at := slices.Index(all, ids[0])
		if user, _, _ := strings.Cut(lane, " "); at < 0 || user != e.User {
			continue
		}
		if at < last[lane] && !d.killedBefore(e.Slot) {
			d.t.Errorf("%v ran after a later one", ids)
		}
		whole = at == 0 || dropped[all[at-1]] == ""
		for _, id := range ids {
			for at < len(all) && dropped[all[at]] != "" {
				at, whole = at+1, false
			}
			if at == len(all) || all[at] != id {
				d.t.Errorf("%v: not in the order of the offers, which is %v", ids, all)
				return false
			}
			at++
		}
		last[lane] = at
		return whole && (at == len(all) || dropped[all[at]] == "")
	}
	d.t.Errorf("%v: nobody has offered that", ids)
	return false
}

// killedBefore reports whether a worker was killed shortly before an instant: the jobs that it had come back when its lease has
// ended, and if it led nobody decides for half a second.
func (d *digestRun) killedBefore(at time.Time) bool {
	return slices.ContainsFunc(d.kills, func(kill time.Time) bool { return at.After(kill) && at.Before(kill.Add(digestLease+time.Second)) })
}

// due returns when a digest was due by its members.
func due(e *execution) time.Time {
	first := e.Digest[0].Offered
	due := first.Add(digestIdle)
	latest := first.Add(digestWait)
	for _, p := range e.Digest[1:] {
		if p.Offered.After(due) {
			break // it was in its lane by then
		}
		if due = p.Offered.Add(digestIdle); due.After(latest) {
			due = latest
		}
	}
	if len(e.Digest) == digestMax {
		due = e.Digest[digestMax-1].Offered
	}
	return due
}

// freeAt returns from when on nothing else of its user ran, if that is later than another instant: the digests of a user run one at a time.
func freeAt(executions []*execution, e *execution, at time.Time) time.Time {
	for _, other := range executions {
		if other.User == e.User && other.began.Before(e.began) && other.ended.After(at) && other.ended.Before(e.began) {
			at = other.ended
		}
	}
	return at
}
