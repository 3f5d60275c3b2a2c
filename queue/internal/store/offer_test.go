package store

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// jobOf returns a job without options for a user of the tenant with that place in an offer.
func jobOf(tenant int, user, body string) OfferJob {
	return OfferJob{
		Tenant: tenant, Lane: Lane{Tenant: fmt.Sprint("t", tenant), User: user, Priority: envelope.Normal}, Body: []byte(body), IDFor: IDMemory,
	}
}

// offerAll offers jobs in one batch, and returns what became of them.
func (d *desk) offerAll(batch string, jobs ...OfferJob) []OfferReceipt {
	d.t.Helper()
	o := Offer{Batch: batch, Keep: time.Minute, Jobs: jobs}
	for i := range 3 {
		o.Tenants = append(o.Tenants, OfferTenant{Name: fmt.Sprint("t", i)})
	}
	reply, err := d.Offer(d.t.Context(), o)
	d.must(err)
	return reply.Receipts
}

// said returns receipts without their stamps.
func said(receipts []OfferReceipt) (all []string) {
	for _, r := range receipts {
		all = append(all, strings.TrimSpace(fmt.Sprint(r.Status, " ", r.Place, " ", r.Waiting, " ", r.Reason, " ", r.Rule)))
	}
	return all
}

// held returns what a lane holds, with the stamps in the order of the receipts as #0, #1, ...
func (d *desk) held(lane Lane, receipts []OfferReceipt) string {
	d.t.Helper()
	return stamps(strings.Join(d.client.LRange(d.t.Context(), d.key.Lane(lane), 0, -1).Val(), " "), receipts)
}

func stamps(text string, receipts []OfferReceipt) string {
	for i, r := range receipts {
		text = strings.ReplaceAll(text, r.Stamp, fmt.Sprint("#", i))
	}
	return text
}

// An effect is what is left of an offered job.
type effect struct{ receipt, lane, id, memory, fold, payload, later, refused string }

// An option concerns its job and nobody else: alone, and beside all others. The jobs before and
// after it have none.
func TestOptionsOfAJob(t *testing.T) {
	t.Parallel()
	sample.Slow(t)
	const after = 1 << 52
	spill := func(j *OfferJob) { j.Spilled, j.Payload = "s", []byte("\x00 apart") }
	refuse := func(j *OfferJob) { j.Refuse, j.Rule = "impossible", "a rule" }
	all := func(j *OfferJob) { spill(j); j.ID, j.IDFor, j.Collapse = "i d", time.Hour, "k" }
	plain := effect{receipt: "a 1 1", lane: "#1odd"}
	for name, test := range map[string]struct {
		set  func(j *OfferJob)
		want effect
	}{
		"none":            {func(*OfferJob) {}, plain},
		"an ID":           {func(j *OfferJob) { j.ID = "i d" }, effect{receipt: "a 1 1", lane: "#1odd", id: "t1:u%20:0", memory: "24h0m0s"}},
		"an ID for long":  {func(j *OfferJob) { j.ID, j.IDFor = "i d", 30*time.Hour }, effect{receipt: "a 1 1", lane: "#1odd", id: "t1:u%20:0", memory: "30h0m0s"}},
		"a collapse key":  {func(j *OfferJob) { j.Collapse = "k" }, effect{receipt: "a 1 1", lane: "=k", fold: "#1odd"}},
		"an instant":      {func(j *OfferJob) { j.NotBefore = after }, effect{receipt: "l 0 1", later: "t1:u%20:0 #1odd"}},
		"a payload apart": {spill, effect{receipt: "a 1 1", lane: "#1odd", payload: "\x00 apart"}},
		"a reason":        {func(j *OfferJob) { j.Refuse = "expired" }, effect{receipt: "x 0 1 expired", refused: "t1:u%20:0 expired  #1odd"}},
		"a rule":          {refuse, effect{receipt: "x 0 1 impossible a rule", refused: "t1:u%20:0 impossible a rule #1odd"}},
		"all of a job that enters": {all,
			effect{receipt: "a 1 1", lane: "=k", id: "t1:u%20:0", memory: "1h0m0s", fold: "#1odd", payload: "\x00 apart"}},
		"all of a job that waits for its time": {func(j *OfferJob) { all(j); j.NotBefore = after },
			effect{receipt: "l 0 1", id: "t1:u%20:0", memory: "1h0m0s", payload: "\x00 apart", later: "t1:u%20:0 #1odd"}},
		"all": {func(j *OfferJob) { all(j); refuse(j); j.NotBefore = after },
			effect{receipt: "x 0 1 impossible a rule", refused: "t1:u%20:0 impossible a rule #1odd"}},
	} {
		t.Run(name, func(t *testing.T) {
			onDesks(t, func(t *testing.T, d *desk) {
				odd := jobOf(1, "u ", "odd")
				odd.Lane.Priority = envelope.High
				test.set(&odd)
				jobs := []OfferJob{jobOf(1, "v", "plain"), odd, jobOf(1, "v", "plain"), jobOf(2, "u ", "plain")}
				receipts := d.offerAll("b", jobs...)
				want := []string{"a 1 0", test.want.receipt, fmt.Sprint("a 2 ", 1+strings.Count(test.want.receipt, "a 1")), "a 1 0"}
				if got := said(receipts); !slices.Equal(got, want) {
					t.Errorf("receipts %q, want %q", got, want)
				}
				if again := d.offerAll("b", jobs...); !slices.Equal(again, receipts) {
					t.Errorf("offered again: %v, and first %v", again, receipts)
				}
				got := d.effect(odd, receipts)
				if got.receipt = test.want.receipt; got != test.want {
					t.Errorf("%+v, want %+v", got, test.want)
				}
				for lane, want := range map[Lane]string{jobs[0].Lane: "#0plain #2plain", jobs[3].Lane: "#3plain"} {
					if got := d.held(lane, receipts); got != want {
						t.Errorf("%v holds %q, want %q", lane, got, want)
					}
				}
			})
		})
	}
}

// effect returns what Redis holds of a job with the ID "i d", the collapse key "k" and a payload
// named "s".
func (d *desk) effect(j OfferJob, receipts []OfferReceipt) effect {
	d.t.Helper()
	ctx := d.t.Context()
	e := effect{
		lane: d.held(j.Lane, receipts), id: d.where("i d"), payload: d.client.Get(ctx, d.key.Body("s")).Val(),
		fold:  stamps(d.client.HGet(ctx, d.key.Fold(j.Lane.Tenant, j.Lane.User), "k").Val(), receipts),
		later: stamps(strings.Join(d.client.ZRange(ctx, d.key.Later(), 0, -1).Val(), ","), receipts),
	}
	if left := d.client.PTTL(ctx, d.key.ID("i d")).Val(); left > 0 {
		e.memory = left.Round(time.Minute).String()
	}
	for _, m := range d.client.XRange(ctx, d.key.Refused(), "-", "+").Val() {
		e.refused += stamps(fmt.Sprint(m.Values["lane"], " ", m.Values["reason"], " ", m.Values["rule"], " ", m.Values["job"]), receipts)
	}
	due := d.client.ZRange(ctx, d.key.Due(j.Lane.Tenant, j.Lane.Priority), 0, -1).Val()
	if indexed := slices.Equal(due, []string{Escape(j.Lane.User)}); indexed != (e.lane != "") {
		d.t.Errorf("the lane holds %q, and its index %q", e.lane, due)
	}
	return e
}

// The script reads the names of users in the keys of their lanes: whatever they are, the index, the
// notices and the records name the lane.
func TestNamesOfLanes(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		d.lead("a")
		o := Offer{Batch: "b", Keep: time.Minute}
		var want []string
		for i, tenant := range []string{"t", "t:u", "lane:t", "%3A", "ü", "t high", ":"} {
			o.Tenants = append(o.Tenants, OfferTenant{Name: tenant})
			for priority := range suffixes {
				for _, user := range []string{"u", "u:high", ":", "%", "lane:t:u", " ", "high", "low", "日本", strings.Repeat("x", 300)} {
					job := OfferJob{Tenant: i, Lane: Lane{Tenant: tenant, User: user, Priority: priority}, Body: []byte("x")}
					refused := job
					refused.Refuse = "expired"
					o.Jobs = append(o.Jobs, job, refused)
					want = append(want, job.Lane.Name())
				}
			}
		}
		reply, err := d.Offer(t.Context(), o)
		d.must(err)
		_, notices, err := d.ReadNotices(t.Context(), "0", -1)
		d.must(err)
		var told, refused []string
		for _, notice := range notices {
			told = append(told, notice.Subject)
		}
		for _, m := range d.client.XRange(t.Context(), d.key.Refused(), "-", "+").Val() {
			refused = append(refused, m.Values["lane"].(string))
		}
		if !slices.Equal(told, want) || !slices.Equal(refused, want) {
			t.Errorf("told %q\nrefused %q\nwant %q", told, refused, want)
		}
		for i, job := range o.Jobs {
			if score := d.client.ZScore(t.Context(), d.key.Due(job.Lane.Tenant, job.Lane.Priority), Escape(job.Lane.User)).Val(); int64(score) != reply.Now {
				t.Errorf("%v is due at %v, want %d", job.Lane, score, reply.Now)
			}
			if i%2 == 0 && reply.Receipts[i].Status != StatusAccepted {
				t.Errorf("%v: %+v", job.Lane, reply.Receipts[i])
			}
		}
	})
}

// Stamps count on from job to job, whatever becomes of the jobs, also where Redis's clock is behind
// the last of them, and receipts name them.
func TestStampsCountOn(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		var last int64
		for batch := range 3 {
			jobs := make([]OfferJob, 50)
			for i := range jobs {
				jobs[i] = jobOf(0, fmt.Sprint(batch), "\x00\xff\n")
				if i%7 == 0 {
					jobs[i].Refuse = "expired"
				}
			}
			if batch == 2 {
				last += time.Hour.Microseconds()
				d.must(d.client.HSet(t.Context(), d.key.Meta(), "stamp", last+1).Err())
			}
			receipts := d.offerAll(fmt.Sprint(batch), jobs...)
			var want []string
			for i, r := range receipts {
				var stamp int64
				if _, err := fmt.Sscanf(r.Stamp, "%013x", &stamp); err != nil || len(r.Stamp) != envelope.StampLen || stamp <= last || i > 0 && stamp != last+1 {
					t.Fatalf("stamp %q after %x, %v", r.Stamp, last, err)
				}
				if last = stamp; r.Status == StatusAccepted {
					want = append(want, r.Stamp+"\x00\xff\n")
				}
			}
			if got := d.client.LRange(t.Context(), d.key.Lane(jobs[0].Lane), 0, -1).Val(); !slices.Equal(got, want) {
				t.Errorf("the lane holds %q, want %q", got, want)
			}
		}
	})
}

// A receipt counts those of its tenant that wait before it: what is accepted, and nothing else.
func TestWaitingBefore(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		with := func(tenant int, user string, set func(j *OfferJob)) OfferJob {
			j := jobOf(tenant, user, "x")
			set(&j)
			return j
		}
		d.offerAll("before", jobOf(0, "u", "x"), jobOf(0, "v", "x"), jobOf(1, "u", "x"))
		got := said(d.offerAll("b",
			jobOf(0, "u", "x"), jobOf(1, "u", "x"),
			with(0, "u", func(j *OfferJob) { j.NotBefore = 1 << 52 }), with(0, "u", func(j *OfferJob) { j.Refuse = "expired" }),
			with(0, "w", func(j *OfferJob) { j.ID, j.Collapse = "id", "k" }), with(0, "w", func(j *OfferJob) { j.ID = "id" }),
			with(0, "w", func(j *OfferJob) { j.Collapse = "k" }), jobOf(0, "w", "x"), jobOf(1, "w", "x"), jobOf(2, "u", "x"),
		))
		want := []string{"a 2 2", "a 2 1", "l 0 3", "x 0 3 expired", "a 1 3", "d 0 4", "r 0 4", "a 2 4", "a 1 2", "a 1 0"}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		if c := d.client.HGetAll(t.Context(), d.key.Tenant("t0")).Val(); c["in"] != "5" || c["other"] != "3" || c["out"] != "2" {
			t.Errorf("t0 has %v", c)
		}
		if c := d.client.HMGet(t.Context(), d.key.Meta(), "in", "other", "out").Val(); fmt.Sprint(c) != "[9 3 2]" {
			t.Errorf("the queue has %v", c)
		}
	})
}

// Of a job that is refused since a key holds something else nothing is left, and what waited before
// still does. Its neighbours enter, and the leader learns of all of them.
func TestNothingIsLeftOfABrokenOffer(t *testing.T) {
	t.Parallel()
	const later, refused = "t2:u:1 #3x,t0:u:1 #1x", "t1:u:1 broken  #2odd"
	for name, test := range map[string]struct {
		key    string
		folded bool // a job with the collapse key waits when the key is broken
		left   effect
	}{
		"lane":                 {"lane:t1:u", false, effect{later: later, refused: refused}},
		"index":                {"due:t1", false, effect{later: later, refused: refused}},
		"fold":                 {"fold:t1:u", false, effect{later: later, refused: refused}},
		"index, one to fold":   {"due:t1", true, effect{lane: "=k", fold: "#5old", later: later, refused: refused}},
		"records, one to fold": {"drops", true, effect{lane: "=k", fold: "#5old", later: later, refused: refused}},
	} {
		t.Run(name, func(t *testing.T) {
			onDesks(t, func(t *testing.T, d *desk) {
				d.lead("a")
				odd, old := jobOf(1, "u", "odd"), jobOf(1, "u", "old")
				odd.ID, odd.Collapse, odd.Spilled, odd.Payload, old.Collapse = "i d", "k", "s", []byte("apart"), "k"
				var before []OfferReceipt
				if test.folded {
					before = d.offerAll("old", old)
				}
				late, soon := jobOf(0, "u", "x"), jobOf(2, "u", "x")
				late.NotBefore, soon.NotBefore = 1<<52+1, 1<<52
				d.must(d.client.Del(t.Context(), "wc:{q}:"+test.key).Err())
				d.text(test.key)
				receipts := d.offerAll("b", jobOf(0, "u", "x"), late, odd, soon, jobOf(2, "u", "x"))
				want := []string{"a 1 0", "l 0 1", fmt.Sprint("x 0 ", len(before), " broken"), "l 0 0", "a 1 0"}
				if got := said(receipts); !slices.Equal(got, want) {
					t.Errorf("%q, want %q", got, want)
				}
				d.must(d.client.Del(t.Context(), "wc:{q}:"+test.key).Err())
				if test.key == "due:t1" && test.folded {
					d.must(d.client.ZAdd(t.Context(), "wc:{q}:due:t1", redis.Z{Member: "u"}).Err())
				}
				if got := d.effect(odd, append(receipts, before...)); got != test.left {
					t.Errorf("left: %+v, want %+v", got, test.left)
				}
				if a, b := d.held(jobOf(0, "u", "").Lane, receipts), d.held(jobOf(2, "u", "").Lane, receipts); a+b != "#0x#4x" {
					t.Errorf("the neighbours' lanes hold %q, %q", a, b)
				}
				_, notices, err := d.ReadNotices(t.Context(), "0", -1)
				d.must(err)
				if want := (Notice{NoticeLater, fmt.Sprint(1 << 52)}); !slices.Contains(notices, want) {
					t.Errorf("notices %v, want %v", notices, want)
				}
			})
		})
	}
}

// The counters of a tenant that was forgotten stay when it offers again.
func TestCountersOfATenantThatReturns(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		d.offerAll("before", jobOf(0, "u", "x"))
		d.must(d.client.Del(t.Context(), d.key.Due("t0", envelope.Normal), d.key.Lane(laneOf("u"))).Err())
		d.must(d.client.Del(t.Context(), d.key.Lane(jobOf(0, "u", "").Lane)).Err())
		d.must(d.ForgetTenants(t.Context(), []string{"t0"}))
		if left := d.client.PTTL(t.Context(), d.key.Tenant("t0")).Val(); left <= 0 {
			t.Fatalf("the counters stay for %v", left)
		}
		d.offerAll("b", jobOf(1, "u", "x"), jobOf(0, "u", "x"))
		if left := d.client.PTTL(t.Context(), d.key.Tenant("t0")).Val(); left >= 0 {
			t.Errorf("the counters are forgotten after %v", left)
		}
		if tenants := d.client.ZRange(t.Context(), d.key.Tenants(), 0, -1).Val(); !slices.Equal(tenants, []string{"t0", "t1"}) {
			t.Errorf("the tenants are %q", tenants)
		}
	})
}

// At its capacity a backlog is full, also within a batch. Where the oldest makes room the leader is
// told, and the door closes later.
func TestCapacityOfABatch(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		tenant         OfferTenant
		accepted, told int
	}{
		{OfferTenant{}, 2010, 0},
		{OfferTenant{Capacity: 3}, 3, 0},
		{OfferTenant{Capacity: math.MaxInt}, 2010, 0},
		{OfferTenant{Capacity: 3, MakesRoom: true}, 1006, 1},
		{OfferTenant{Capacity: math.MaxInt, MakesRoom: true}, 2010, 0},
	} {
		t.Run(fmt.Sprint(test.tenant), func(t *testing.T) {
			onDesks(t, func(t *testing.T, d *desk) {
				d.lead("a")
				test.tenant.Name = "t0"
				accepted, told := 0, 0
				for batch := range 2 {
					o := Offer{Batch: fmt.Sprint(batch), Keep: time.Minute, Tenants: []OfferTenant{test.tenant}}
					for range 1005 {
						o.Jobs = append(o.Jobs, jobOf(0, "u", "x"))
					}
					reply, err := d.Offer(t.Context(), o)
					d.must(err)
					for _, r := range reply.Receipts {
						if r.Status == StatusAccepted {
							accepted++
						} else if r.Status != StatusRefused || r.Reason != "full" {
							t.Fatalf("%+v", r)
						}
					}
				}
				_, notices, err := d.ReadNotices(t.Context(), "0", -1)
				d.must(err)
				if slices.Contains(notices, Notice{NoticeFull, "t0"}) {
					told = 1
				}
				if accepted != test.accepted || told != test.told {
					t.Errorf("%d were accepted, want %d; the leader was told %d times, want %d", accepted, test.accepted, told, test.told)
				}
			})
		})
	}
}

// A full backlog takes what needs no room in it: jobs for later, and those that replace others.
func TestAFullBacklogTakesWhatNeedsNoRoom(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		first, second, third, late := jobOf(0, "u", "x"), jobOf(0, "u", "x"), jobOf(0, "u", "x"), jobOf(0, "u", "x")
		first.Collapse, second.Collapse, third.Collapse, late.NotBefore = "k", "k", "other", 1<<52
		reply, err := d.Offer(t.Context(), Offer{
			Batch: "b", Keep: time.Minute, Tenants: []OfferTenant{{Name: "t0", Capacity: 1}}, Jobs: []OfferJob{first, second, third, late, jobOf(0, "u", "x")},
		})
		d.must(err)
		if got, want := said(reply.Receipts), []string{"a 1 0", "r 0 1", "x 0 1 full", "l 0 1", "x 0 1 full"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// What is no list of receipts is an error.
func TestMalformedReceipts(t *testing.T) {
	t.Parallel()
	o := Offer{Tenants: make([]OfferTenant, 1), Jobs: make([]OfferJob, 2)}
	for _, text := range []string{"", "0643fc1f88824", "0643fc1f88824\n0\n1", "0643fc1f88824\n0\n1\n2\n3", "x\n0\n1\n2", "0643fc1f88824 a 1 0 - \n0\n1"} {
		if receipts, err := readReceipts(text, o, 1); err == nil {
			t.Errorf("%q: %v", text, receipts)
		}
	}
}
