package store

import (
	"slices"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// bury makes a dead job of a user and returns its entry.
func (d *desk) bury(user, job string) string {
	d.t.Helper()
	lane := Lane{Tenant: "t", User: user, Priority: envelope.Normal}
	claim := Claim{Stamp: "claim", Lane: lane}
	d.must(d.client.HSet(d.t.Context(), "wc:{q}:running:w", claim.String(), job).Err())
	held, err := d.Fail(d.t.Context(), Failure{Worker: "w", Claim: claim, Delay: -1, Job: job, Error: "no"})
	if err != nil || !held {
		d.t.Fatal(held, err)
	}
	records, err := d.Dead(d.t.Context(), "", 1)
	d.must(err)
	return records[0].Entry
}

// die takes a job out of its lane as the leader does, and buries it.
func (d *desk) die(user string, change func(*envelope.Envelope)) string {
	d.t.Helper()
	d.offer(user, func(e *envelope.Envelope) {
		e.Failures, e.Lost, e.Error, e.Slot, e.Late = 3, 1, "no", 17, 1
		if change != nil {
			change(e)
		}
	})
	entries, err := d.Entries(d.t.Context(), []Page{{Lane{Tenant: "t", User: user, Priority: envelope.Normal}, 0, 1}})
	d.must(err)
	d.must(d.client.Del(d.t.Context(), "wc:{q}:lane:t:"+user, "wc:{q}:fold:t:"+user, "wc:{q}:tenants").Err())
	d.must(d.client.ZRem(d.t.Context(), "wc:{q}:due:t", user).Err())
	for _, key := range []string{"meta", "tenant:t"} {
		d.must(d.client.HIncrBy(d.t.Context(), "wc:{q}:"+key, "started", 1).Err())
	}
	return d.bury(user, entries[0].Job)
}

func TestRevive(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		a, b := d.die("u", id("a")), d.die("v", nil)
		d.told(false, Notice{NoticeFinished, "claim 0 t:u:1"}, Notice{NoticeFinished, "claim 0 t:v:1"})
		n, err := d.Revive(t.Context(), []string{a, "1-1", b, a})
		if n != 2 || err != nil {
			t.Errorf("revived %d, %v, want 2", n, err)
		}
		d.told(false, Notice{NoticeTenant, "t"})
		if all := d.counts(); all.Waiting != 2 || all.Dead != 2 || all.Offered != 2 {
			t.Errorf("%+v", all)
		}
		if lane := d.where("a"); lane != "t:u:1" {
			t.Errorf("it is %q", lane)
		}
		entries, err := d.Entries(t.Context(), []Page{{Lane{Tenant: "t", User: "u", Priority: envelope.Normal}, 0, 10}})
		d.must(err)
		job, err := envelope.Open(entries[0].Job)
		d.must(err)
		if len(entries) != 1 || job.Failures != 0 || job.Lost != 0 || job.Error != "" || job.Slot != 0 || job.Late != 0 || job.Revived < job.Offered() {
			t.Errorf("%d jobs wait, the first is %+v", len(entries), job)
		}
		if names, err := d.DuePage(t.Context(), 0, 10); err != nil || !slices.Equal(names, []string{"t"}) {
			t.Errorf("due are %q, %v", names, err)
		}
		if due, err := d.lanesOf(t.Context(), "t", 10); err != nil || len(due) != 2 {
			t.Errorf("lanes %v, %v", due, err)
		}
		if n, err = d.Revive(t.Context(), []string{a, b}); n != 0 || err != nil {
			t.Errorf("again: %d, %v", n, err)
		}
	})
}

// A revived job takes the place of the one under its collapse key, whoever that is.
func TestRevivedJobsCollapse(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		first, second := d.die("u", folded("first", "k")), d.die("u", folded("second", "k"))
		d.offer("u", id("before"))
		d.offer("u", folded("waits", "k"))
		d.offer("u", id("after"))
		n, err := d.Revive(t.Context(), []string{first, second})
		if n != 2 || err != nil {
			t.Errorf("revived %d, %v", n, err)
		}
		if lane := d.lane("u"); lane != "before second after" {
			t.Errorf("waiting: %s", lane)
		}
		if d.where("waits") != WasDropped || d.where("first") != WasDropped || d.where("second") != "t:u:1" {
			t.Errorf("waits: %q, first: %q, second: %q", d.where("waits"), d.where("first"), d.where("second"))
		}
		if all := d.counts(); all.Waiting != 3 || all.Dropped != 2 {
			t.Errorf("%+v", all)
		}
	})
}

// One job that nobody can read does not keep the others dead.
func TestReviveBesideAMalformedJob(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		good, bad := d.die("u", id("good")), d.bury("u", "not a job")
		n, err := d.Revive(t.Context(), []string{bad, good})
		if n != 1 || err == nil || !strings.Contains(err.Error(), bad) || d.lane("u") != "good" {
			t.Errorf("revived %d, %v; waiting %q", n, err, d.lane("u"))
		}
		if dead, err := d.Dead(t.Context(), "", 10); err != nil || len(dead) != 1 || dead[0].Entry != bad {
			t.Errorf("dead %+v, %v", dead, err)
		}
	})
}

// What is deleted is gone with its payload; what is named twice, or is not there, does no harm.
func TestDeleteDead(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		d.must(d.client.Set(t.Context(), "wc:{q}:body:large", "payload", 0).Err())
		a, b, stays := d.die("u", func(e *envelope.Envelope) { e.Spilled = "large" }), d.die("v", nil), d.die("w", nil)
		d.told(false, Notice{NoticeFinished, "claim 0 t:u:1"}, Notice{NoticeFinished, "claim 0 t:v:1"}, Notice{NoticeFinished, "claim 0 t:w:1"})
		n, err := d.DeleteDead(t.Context(), []string{a, "1-1", b, a})
		if n != 2 || err != nil {
			t.Errorf("deleted %d, %v, want 2", n, err)
		}
		d.told(false)
		left, err := d.Dead(t.Context(), "", 10)
		d.must(err)
		if len(left) != 1 || left[0].Entry != stays {
			t.Errorf("left: %+v", left)
		}
		if d.client.Exists(t.Context(), "wc:{q}:body:large").Val() != 0 {
			t.Error("the payload is still there")
		}
	})
}

// A job that is revived into the place of one that has come back stands there as that one did.
func TestARevivedJobKeepsThePlaceItTakes(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		collapse := func(e *envelope.Envelope) { e.CollapseKey = "k" }
		entry := d.die("u", collapse)
		d.offer("u", collapse)
		fold := Folded{Tenant: "t", User: "u", Key: envelope.FoldName("k")}
		jobs, err := d.FoldedJobs(t.Context(), []Folded{fold})
		d.must(err)
		waiting, err := envelope.Open(jobs[0])
		d.must(err)
		waiting.Slot = 9
		d.must(d.client.HSet(t.Context(), d.key.Fold("t", "u"), fold.Key, waiting.String()).Err())
		n, err := d.Revive(t.Context(), []string{entry})
		if n != 1 || err != nil {
			t.Fatalf("revived %d, %v", n, err)
		}
		jobs, err = d.FoldedJobs(t.Context(), []Folded{fold})
		d.must(err)
		if revived, err := envelope.Open(jobs[0]); err != nil || revived.Slot != 9 || revived.Revived == 0 {
			t.Errorf("%+v, %v; want it revived, with slot 9", revived, err)
		}
	})
}
