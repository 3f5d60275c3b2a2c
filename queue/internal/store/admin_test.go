package store

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// A desk is a store with what a test does to it.
type desk struct {
	*Store
	t      *testing.T
	client redis.UniversalClient
	read   string // the last notice that was read
	before int64  // changes that the leader knows of
}

// onDesks runs a test on miniredis and on a real Redis.
func onDesks(t *testing.T, test func(t *testing.T, d *desk)) {
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		s, err := New(client, "q")
		if err != nil {
			t.Fatal(err)
		}
		test(t, &desk{Store: s, t: t, client: client, read: "0"})
	})
}

func (d *desk) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

// offer offers a job to a user of tenant "t", and returns its stamp.
func (d *desk) offer(user string, change func(*envelope.Envelope)) string {
	d.t.Helper()
	e := envelope.Envelope{Cost: 1, MaxAttempts: envelope.DefaultAttempts, Priority: envelope.Normal, Type: "x"}
	if change != nil {
		change(&e)
	}
	version, err := d.client.HGet(d.t.Context(), "wc:{q}:meta", "policies").Int64()
	if err != nil && err != redis.Nil {
		d.t.Fatal(err)
	}
	job := OfferJob{
		Lane: Lane{Tenant: "t", User: user, Priority: e.Priority}, Body: e.Body(), NotBefore: e.Ready, ID: e.ID, IDFor: IDMemory, Collapse: e.CollapseKey,
		Spilled: e.Spilled,
	}
	if e.Spilled != "" {
		job.Payload = []byte("apart")
	}
	reply, err := d.Offer(d.t.Context(), Offer{
		Batch: fmt.Sprint(time.Now().UnixNano(), user, e), Keep: time.Minute, Policies: version, Tenants: []OfferTenant{{Name: "t"}}, Jobs: []OfferJob{job},
	})
	d.must(err)
	return reply.Receipts[0].Stamp
}

// told checks whether there was a change that the leader must know of, and that it finds the
// notices: even when nobody leads.
func (d *desk) told(changed bool, want ...Notice) {
	d.t.Helper()
	now, err := d.client.HGet(d.t.Context(), "wc:{q}:meta", "changes").Int64()
	if err != nil && err != redis.Nil {
		d.t.Fatal(err)
	}
	if (now > d.before) != changed || now < d.before {
		d.t.Errorf("the number of the last change is %d, and was %d; want another: %v", now, d.before, changed)
	}
	d.before = now
	var notices []Notice
	d.read, notices, err = d.ReadNotices(d.t.Context(), d.read, -1)
	d.must(err)
	if !slices.Equal(notices, want) {
		d.t.Errorf("notices %v, want %v", notices, want)
	}
}

func (d *desk) counts() Counts {
	d.t.Helper()
	totals, err := d.Totals(d.t.Context())
	d.must(err)
	tenants, err := d.Tenants(d.t.Context(), []string{"t"})
	d.must(err)
	if tenants[0].Counts != totals.Counts {
		d.t.Errorf("the only tenant has %+v, the queue %+v", tenants[0].Counts, totals.Counts)
	}
	return totals.Counts
}

// lane returns the IDs of the jobs in a user's lane.
func (d *desk) lane(user string) string {
	d.t.Helper()
	entries, err := d.Entries(d.t.Context(), []Page{{Lane{Tenant: "t", User: user, Priority: envelope.Normal}, 0, 100}})
	d.must(err)
	var ids []string
	for _, entry := range entries {
		job, err := envelope.Open(entry.Job)
		d.must(err)
		ids = append(ids, job.Name())
	}
	return strings.Join(ids, " ")
}

func (d *desk) where(id string) string {
	d.t.Helper()
	where, err := d.Where(d.t.Context(), id)
	d.must(err)
	return where
}

func (d *desk) exists(key string) bool {
	return d.client.Exists(d.t.Context(), "wc:{q}:"+key).Val() == 1
}

func id(id string) func(*envelope.Envelope) { return func(e *envelope.Envelope) { e.ID = id } }

func folded(id, key string) func(*envelope.Envelope) {
	return func(e *envelope.Envelope) { e.ID, e.CollapseKey = id, key }
}

func TestSetPolicies(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		source, version, err := d.Policies(t.Context())
		if source != "" || version != 0 || err != nil {
			t.Errorf("before any were set: %q, %d, %v", source, version, err)
		}
		last := int64(0)
		for i, source := range []string{"a: 1\n", "b: 2\n", "a: 1\n"} {
			changed, err := d.SetPolicies(t.Context(), NewPolicies{Source: source, Expected: -1})
			if err != nil || !changed {
				t.Fatalf("set %d: %v, %v", i, changed, err)
			}
			got, version, err := d.Policies(t.Context())
			if got != source || version <= last || err != nil {
				t.Errorf("set %d: %q, version %d after %d, %v", i, got, version, last, err)
			}
			view, err := d.Look(t.Context(), nil)
			if err != nil || view.Policies != version {
				t.Errorf("meta says version %d, %v; want %d", view.Policies, err, version)
			}
			last = version
			d.told(true, Notice{NoticePolicies, fmt.Sprint(version)})
		}
		if changed, err := d.SetPolicies(t.Context(), NewPolicies{Source: "a: 1\n", Expected: -1}); err != nil || changed {
			t.Errorf("the same again: %v, %v", changed, err)
		}
		d.told(false)
		d.must(d.client.Del(t.Context(), "wc:{q}:policies").Err()) // evicted
		_, err = d.SetPolicies(t.Context(), NewPolicies{Source: "a: 1\n", Expected: -1})
		d.must(err)
		if _, version, _ := d.Policies(t.Context()); version <= last {
			t.Errorf("version %d after the policies were lost, %d before", version, last)
		}
	})
}

// A failover loses the newest change, and another one is made: it has a number of its own, so that
// a leader that knows the lost one commits nothing before it has read the other.
func TestAChangeAfterALostOne(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		number := func() string { return d.client.HGet(t.Context(), d.key.Meta(), "changes").Val() }
		d.must(d.Pause(t.Context(), envelope.QueueScope, 1<<52, Note{}))
		kept := number()
		d.must(d.Pause(t.Context(), envelope.TenantScope("t"), 1<<52, Note{}))
		lost := number()
		d.must(d.client.HSet(t.Context(), d.key.Meta(), "changes", kept).Err())
		d.must(d.Pause(t.Context(), envelope.TenantScope("u"), 1<<52, Note{}))
		if number() == lost {
			t.Errorf("two changes have the number %s", lost)
		}
		d.must(d.client.HSet(t.Context(), d.key.Meta(), "changes", 1<<52).Err()) // by a clock that was set back since
		d.must(d.Pause(t.Context(), envelope.TenantScope("t"), 1<<52, Note{}))
		if n, _ := strconv.ParseInt(number(), 10, 64); n <= 1<<52 {
			t.Errorf("a change has the number %d, and one before it a higher one", n)
		}
	})
}

func TestPauses(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		view, err := d.Look(t.Context(), nil)
		d.must(err)
		hour := int64(time.Hour / time.Microsecond)
		pauses := func(flag string, want map[string]int64) {
			t.Helper()
			got, err := d.Pauses(t.Context())
			if err != nil || !maps.Equal(got, want) {
				t.Errorf("paused %v, %v; want %v", got, err, want)
			}
			view, err := d.Look(t.Context(), []string{"q", "t:a", "u:a:b", "t:ended"})
			if err != nil || !maps.Equal(view.Pauses, want) {
				t.Errorf("seen %v, %v; want %v", view.Pauses, err, want)
			}
			if now := d.client.HGet(t.Context(), "wc:{q}:meta", "paused").Val(); now != flag {
				t.Errorf("the flag says %q, want %q", now, flag)
			}
		}
		d.must(d.Pause(t.Context(), "t:a", view.Now+hour, Note{}))
		d.told(true, Notice{NoticePaused, "t:a"})
		d.must(d.Pause(t.Context(), "q", view.Now+2*hour, Note{}))
		d.told(true, Notice{NoticePaused, "q"})
		pauses("1", map[string]int64{"t:a": view.Now + hour, "q": view.Now + 2*hour})
		d.must(d.client.ZAdd(t.Context(), "wc:{q}:paused", redis.Z{Score: float64(view.Now - 1), Member: "t:ended"}).Err())
		d.must(d.Pause(t.Context(), "t:a", view.Now+hour/2, Note{})) // shorter
		d.told(true, Notice{NoticePaused, "t:a"})
		pauses("1", map[string]int64{"t:a": view.Now + hour/2, "q": view.Now + 2*hour})
		d.must(d.Pause(t.Context(), "q", 0, Note{}))
		d.told(true, Notice{NoticePaused, "q"})
		d.must(d.Pause(t.Context(), "t:a", 1, Note{}))
		d.told(true, Notice{NoticePaused, "t:a"})
		pauses("0", map[string]int64{})
	})
}

func TestCancel(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		d.offer("u", id("a: %"))
		was, err := d.Cancel(t.Context(), "a: %")
		if lane, bad := envelope.ParseLane(was); err != nil || bad != nil || lane.User != "u" {
			t.Errorf("it was %q, %v", was, err)
		}
		d.told(false, Notice{NoticeCancel, "a: %"})
		if left := d.client.PTTL(t.Context(), "wc:{q}:id:a%3A%20%25").Val(); left >= 0 {
			t.Errorf("a cancelled job is known for %v, want until it is dropped", left)
		}
		for _, want := range []string{WasCancelled, ""} {
			if was, err = d.Cancel(t.Context(), map[string]string{WasCancelled: "a: %", "": "nobody"}[want]); was != want || err != nil {
				t.Errorf("it was %q, %v, want %q", was, err, want)
			}
		}
		d.told(false)
		if settings, err := d.Settings(t.Context()); err != nil || !slices.Equal(settings.Cancelled, []string{"a: %"}) {
			t.Errorf("cancelled %q, %v", settings.Cancelled, err)
		}
		d.must(d.Dropped(t.Context(), []string{"a: %", "nobody"}, nil))
		d.told(false, Notice{NoticeDropped, "a: %"})
		if left := d.client.PTTL(t.Context(), "wc:{q}:id:a%3A%20%25").Val(); d.where("a: %") != WasDropped || left <= 0 || left > IDMemory {
			t.Errorf("it is %q, and known for %v", d.where("a: %"), left)
		}
		if d.where("nobody") != "" {
			t.Error("an ID that was not known is known")
		}
	})
}

func TestPurge(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		for i := range 7 {
			d.offer(fmt.Sprint("u", i%2), id(fmt.Sprint("job-", i)))
		}
		d.offer("u0", folded("old", "k"))
		d.offer("u0", folded("new", "k"))
		d.offer("u1", func(e *envelope.Envelope) { e.Spilled = "big" })
		d.offer("high", func(e *envelope.Envelope) { e.Priority = envelope.High })
		d.offer("later", func(e *envelope.Envelope) { e.Ready = time.Now().Add(time.Hour).UnixMicro() })
		d.must(d.client.ZAdd(t.Context(), "wc:{q}:due:t", redis.Z{Score: 1, Member: "nobody"}).Err()) // a lane that is gone
		before := d.counts()
		d.told(false)
		var each []int
		for range 20 {
			n, empty, err := d.Purge(t.Context(), "t", 4, Note{})
			d.must(err)
			if empty {
				break
			}
			each = append(each, n)
			d.told(false, Notice{NoticeTenant, "t"})
		}
		if !slices.Equal(each, []int{4, 4, 2}) && !slices.Equal(each, []int{4, 4, 2, 0}) {
			t.Errorf("purged %v", each)
		}
		after := d.counts()
		if after.Waiting != 0 || after.Dropped-before.Dropped != 10 || after.Offered != before.Offered {
			t.Errorf("from %+v to %+v", before, after)
		}
		records, err := d.Drops(t.Context(), 100)
		d.must(err)
		if len(records) != 11 || records[0].Reason != "purged" || records[10].Reason != "collapsed" {
			t.Errorf("%d records, %+v", len(records), records)
		}
		for _, name := range []string{"job-0", "job-6", "new"} {
			if d.where(name) != WasDropped {
				t.Errorf("%s is %q", name, d.where(name))
			}
		}
		for _, key := range []string{"body:big", "due:t", "due:t:high", "tenants", "lane:t:u0", "fold:t:u0"} {
			if d.exists(key) {
				t.Errorf("%s is left", key)
			}
		}
		if !d.exists("later") {
			t.Error("what is scheduled was purged")
		}
	})
}

// An index of another type does not keep the tenant's other lanes from being purged.
func TestPurgeBesideABrokenIndex(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		d.offer("u", id("a"))
		d.must(d.client.Set(t.Context(), "wc:{q}:due:t:high", "broken", 0).Err())
		n, _, err := d.Purge(t.Context(), "t", 10, Note{})
		if err != nil || n != 1 || d.lane("u") != "" {
			t.Errorf("purged %d, %v; left %q", n, err, d.lane("u"))
		}
	})
}

// What leaves its lane, or is replaced, between the look and the change stays as it is.
func TestPurgeLeavesWhatHasChanged(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		d.offer("u", id("a"))
		d.offer("u", id("b"))
		d.offer("u", folded("old", "k"))
		entries, err := d.Entries(t.Context(), []Page{{Lane{Tenant: "t", User: "u", Priority: envelope.Normal}, 0, 10}})
		d.must(err)
		d.must(d.client.LPop(t.Context(), "wc:{q}:lane:t:u").Err()) // the leader has claimed it
		d.offer("u", folded("new", "k"))
		c := d.newChange()
		c.tell(NoticeTenant, "t")
		for _, entry := range entries {
			d.Store.purge(c, entry, 1)
		}
		done, err := c.apply(t.Context())
		d.must(err)
		if len(done) != 1 || !done[1] || d.lane("u") != "new" {
			t.Errorf("done %v, left %q", done, d.lane("u"))
		}
	})
}

// A key of another kind is one command's trouble: all else is done, and the leader told.
func TestAChangeGoesOnAfterAnError(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		c := d.newChange()
		c.tell(NoticeTenant, "t")
		c.always()
		c.do("SET", d.key.ID("string"), "x")
		c.do("HSET", d.key.ID("string"), "x", "y")
		c.do("SET", d.key.ID("after"), "x")
		c.when(1, "HLEN", []string{d.key.ID("string")})
		c.do("SET", d.key.ID("never"), "x")
		c.when("x", "GET", []string{d.key.ID("after")})
		c.do("SET", d.key.ID("last"), "x")
		done, err := c.apply(t.Context())
		if err == nil || !strings.Contains(err.Error(), "HSET wc:{q}:id:string") || len(done) != 2 || !done[0] || !done[2] {
			t.Errorf("done %v, %v", done, err)
		}
		if d.where("after") != "x" || d.where("never") != "" || d.where("last") != "x" {
			t.Error("what stands after an error was not done, or what has no reason was")
		}
		d.told(false, Notice{NoticeTenant, "t"})
	})
}

func TestForgetID(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		d.offer("u", id("a"))
		d.must(d.ForgetID(t.Context(), "a", WasStarted))
		if d.where("a") == "" {
			t.Error("forgotten although it waits")
		}
		d.must(d.ForgetID(t.Context(), "a", d.where("a")))
		d.must(d.ForgetID(t.Context(), "nobody", WasDead))
		if d.where("a") != "" {
			t.Error("not forgotten")
		}
	})
}

// Keys of another schema are not touched, and the error says so.
func TestOtherSchema(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		d.must(d.client.HSet(t.Context(), "wc:{q}:meta", "schema", "9").Err())
		errs := map[string]error{"pause": d.Pause(t.Context(), "q", 1, Note{})}
		_, errs["set policies"] = d.SetPolicies(t.Context(), NewPolicies{Source: "x", Expected: -1})
		_, errs["look"] = d.Look(t.Context(), nil)
		_, errs["totals"] = d.Totals(t.Context())
		_, _, errs["purge"] = d.Purge(t.Context(), "t", 10, Note{})
		_, errs["revive"] = d.Revive(t.Context(), []string{d.client.XAdd(t.Context(), &redis.XAddArgs{Stream: "wc:{q}:dead", Values: []any{"lane", "t:u:1", "job", "x"}}).Val()})
		c := d.newChange()
		c.always()
		_, errs["change"] = c.apply(t.Context())
		for name, err := range errs {
			if err == nil || !strings.Contains(err.Error(), "another schema: 9; this program reads 2") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n := d.client.DBSize(t.Context()).Val(); n != 2 {
			t.Errorf("%d keys, want the two that there were", n)
		}
	})
}
