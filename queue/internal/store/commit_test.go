package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// lead makes a worker the leader and returns the fence of its first commit.
func (d *desk) lead(worker string) Fence {
	d.t.Helper()
	d.must(d.client.HSet(d.t.Context(), "wc:{q}:meta", "till", 0).Err())
	term, err := d.Lead(d.t.Context(), worker, time.Minute, "")
	d.must(err)
	if term.Token == "" {
		d.t.Fatal("nobody leads, and " + worker + " may not")
	}
	return Fence{Token: term.Token, Lease: time.Minute, Seq: term.Seq + 1, Changes: term.Changes, Notice: "9-9"}
}

// all returns everything that Redis holds.
func (d *desk) all() map[string]string {
	d.t.Helper()
	ctx, all := d.t.Context(), map[string]string{}
	for _, key := range d.client.Keys(ctx, "*").Val() {
		var value any
		switch kind := d.client.Type(ctx, key).Val(); kind {
		case "string":
			value = d.client.Get(ctx, key).Val()
		case "list":
			value = d.client.LRange(ctx, key, 0, -1).Val()
		case "hash":
			value = d.client.HGetAll(ctx, key).Val()
		case "zset":
			value = d.client.ZRangeWithScores(ctx, key, 0, -1).Val()
		case "set":
			value = d.client.SMembers(ctx, key).Val()
		case "stream":
			value = d.client.XRange(ctx, key, "-", "+").Val()
		default:
			d.t.Fatal("what is a " + kind)
		}
		all[key] = fmt.Sprint(value)
	}
	return all
}

// Commit sends a commit and waits for the reply.
func (d *desk) Commit(ctx context.Context, f Fence, c *Commit) (CommitReply, error) {
	return d.Send(ctx, f, c)()
}

func (d *desk) claimed(worker string) []Claim {
	d.t.Helper()
	claims, err := d.Claimed(d.t.Context(), worker)
	d.must(err)
	var all []Claim
	for _, claim := range claims {
		all = append(all, claim.Claim)
	}
	slices.SortFunc(all, func(a, b Claim) int { return strings.Compare(a.String(), b.String()) })
	return all
}

func laneOf(user string) Lane { return Lane{Tenant: "t", User: user, Priority: envelope.Normal} }

// leaving are entries that leave their lane for nothing.
func leaving(begins ...string) []Leaving {
	entries := make([]Leaving, len(begins))
	for i, begin := range begins {
		entries[i].Begin = begin
	}
	return entries
}

// take writes into a commit that a worker gets the first job of a lane.
func (d *desk) take(c *Commit, worker, user, stamp string, slot int64) Claim {
	claim := envelope.Claim{Stamp: stamp, Lane: laneOf(user), Slot: slot, Spent: slot}
	c.Take(laneOf(user), []Leaving{{stamp, worker, claim}})
	c.Tell(worker, "!job", claim.String())
	c.State("t:t", "remembered", 1000)
	c.Count("t", "started", 1)
	c.Drop(laneOf(user), "x", "expired", "", 1)
	c.Read(laneOf(user), 5)
	return claim
}

// Slots that no clock which is right gives, and that one for a worker far away may have.
var (
	farAhead  = time.Now().Add(time.Hour).UnixMicro()
	nearAhead = time.Now().Add(5 * time.Second).UnixMicro()
)

// A commit of somebody else, of another number, with a slot too far ahead or beside a change that the leader does
// not know of is refused, and leaves everything as it was.
func TestFence(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		wrong func(f *Fence)
		is    func(err error) bool
	}{
		"another token": {func(f *Fence) { f.Token = "7:b" }, func(err error) bool { return errors.Is(err, ErrDeposed) }},
		"no token":      {func(f *Fence) { f.Token = "" }, func(err error) bool { return errors.Is(err, ErrDeposed) }},
		"the number before": {func(f *Fence) { f.Seq-- }, func(err error) bool {
			var order *OrderError
			return errors.As(err, &order) && order.Last == 0
		}},
		"the number after":  {func(f *Fence) { f.Seq++ }, func(err error) bool { return errors.As(err, new(*OrderError)) }},
		"a change too few":  {func(f *Fence) { f.Changes-- }, func(err error) bool { return errors.Is(err, ErrChanged) }},
		"a change too many": {func(f *Fence) { f.Changes++ }, func(err error) bool { return errors.Is(err, ErrChanged) }},
		"a slot too far":    {func(f *Fence) { f.Slot = farAhead }, func(err error) bool { return errors.Is(err, ErrAhead) }},
	} {
		t.Run(name, func(t *testing.T) {
			onDesks(t, func(t *testing.T, d *desk) {
				stamp := d.offer("u", nil)
				d.must(d.Pause(t.Context(), "t:x", 1, Note{}))
				f := d.lead("a")
				bad := f
				test.wrong(&bad)
				before, c := d.all(), d.NewCommit()
				d.take(c, "a", "u", stamp, 5)
				if _, err := d.Commit(t.Context(), bad, c); !test.is(err) {
					t.Errorf("%v", err)
				}
				if after := d.all(); !maps.Equal(before, after) {
					t.Errorf("was %v\nis  %v", before, after)
				}
				c = d.NewCommit()
				claim := d.take(c, "a", "u", stamp, 5)
				f.Slot = nearAhead
				if _, err := d.Commit(t.Context(), f, c); err != nil || !slices.Equal(d.claimed("a"), []Claim{claim}) {
					t.Errorf("then, as it should be: %v", err)
				}
			})
		})
	}
}

// Where one thing is not as the leader saw it, nothing is done, and the reply names it.
func TestDiffers(t *testing.T) {
	t.Parallel()
	sample.Slow(t)
	fold := Folded{"t", "u", "k"}
	for name, check := range map[string]func(d *desk, c *Commit) int{
		"another job": func(d *desk, c *Commit) int { return c.Take(laneOf("u"), leaving("0000000000001")) },
		"more than wait": func(d *desk, c *Commit) int {
			return c.Take(laneOf("u"), leaving(d.offer("u", nil), "0000000000002", "3"))
		},
		"an empty lane": func(d *desk, c *Commit) int { return c.Take(laneOf("nobody"), leaving("0000000000001")) },
		"a lane is a text": func(d *desk, c *Commit) int {
			d.text("lane:t:w")
			return c.Take(laneOf("w"), leaving("0000000000001"))
		},
		"another stub": func(d *desk, c *Commit) int {
			d.offer("w", folded("", "k"))
			return c.Take(laneOf("w"), leaving("=kk"))
		},
		"half a stub": func(d *desk, c *Commit) int {
			d.offer("w", folded("", "kk"))
			return c.Take(laneOf("w"), leaving("=k"))
		},
		"a claim is gone": func(d *desk, c *Commit) int { return c.EndClaim("a", Claim{Stamp: "gone"}) },
		"nothing matures": func(d *desk, c *Commit) int { return c.Mature("nothing", 1<<52) },
		"there is a fold": func(d *desk, c *Commit) int { d.offer("u", folded("", "k")); return c.Fold(fold, "job") },
		"another fold": func(d *desk, c *Commit) int {
			d.offer("u", folded("", "k"))
			return c.Refold(fold, "0000000000001", "job")
		},
		"cancelled": func(d *desk, c *Commit) int {
			d.must(d.client.SAdd(d.t.Context(), "wc:{q}:cancelled", "id").Err())
			return c.NotCancelled("id")
		},
		"a worker has left": func(_ *desk, c *Commit) int { return c.Lives("nobody") },
		"no fold":           func(d *desk, c *Commit) int { return c.Refold(fold, "0000000000001", "job") },
		"no fold to go":     func(d *desk, c *Commit) int { return c.Unfold(fold, "0000000000001") },
		"folds are a text":  func(d *desk, c *Commit) int { d.text("fold:t:u"); return c.Fold(fold, "job") },
	} {
		t.Run(name, func(t *testing.T) {
			onDesks(t, func(t *testing.T, d *desk) {
				c := d.NewCommit()
				stamp := d.offer("v", nil)
				d.take(c, "a", "v", stamp, 5)
				number := check(d, c)
				f := d.lead("a")
				before := d.all()
				var differs *DiffersError
				if _, err := d.Commit(t.Context(), f, c); !errors.As(err, &differs) || !slices.Equal(differs.Checks, []int{number}) {
					t.Errorf("%v, want check %d", err, number)
				}
				if after := d.all(); !maps.Equal(before, after) {
					t.Errorf("was %v\nis  %v", before, after)
				}
			})
		})
	}
}

// text puts a text where something else belongs.
func (d *desk) text(key string) {
	d.t.Helper()
	d.must(d.client.Set(d.t.Context(), "wc:{q}:"+key, "text", 0).Err())
}

// A commit does all that it says.
func TestCommit(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		first, second := d.offer("u", nil), d.offer("u", nil)
		f := d.lead("a")
		c := d.NewCommit()
		claim := d.take(c, "b", "u", first, 5)
		reply, err := d.Commit(t.Context(), f, c)
		d.must(err)
		if len(reply.Errors) > 0 || len(reply.Heads) != 1 || len(reply.Heads[0]) != 1 || !strings.HasPrefix(reply.Heads[0][0], second) {
			t.Errorf("%+v", reply)
		}
		message, at, err := d.Message(t.Context(), "b", time.Second)
		if words := Words(message); err != nil || at != reply.Now || !slices.Equal(words, []string{"!job", claim.String()}) {
			t.Errorf("b is told %q at %d, %v", message, at, err)
		}
		states, _ := d.States(t.Context(), []string{"t:t"})
		if !slices.Equal(d.claimed("b"), []Claim{claim}) || states[0] != "remembered" || d.counts().Started != 1 {
			t.Errorf("claims %v, state %q, %+v", d.claimed("b"), states, d.counts())
		}
		f.Seq++
		c = d.NewCommit()
		c.EndClaim("b", claim)
		c.PutFirst(laneOf("u"), first+"job", envelope.Place{Slot: 1, Stamp: first}, 3)
		c.State("t:t", "", 0)
		c.Take(laneOf("u"), leaving(second))
		c.Read(laneOf("u"), 5)
		reply, err = d.Commit(t.Context(), f, c)
		d.must(err)
		if len(d.claimed("b")) != 0 || d.exists("state:t:t") || len(reply.Heads[0]) != 1 || reply.Heads[0][0] != first+"job" {
			t.Errorf("a claim taken back: %v, %+v", d.all(), reply)
		}
		if due := d.client.ZScore(t.Context(), "wc:{q}:due:t", "u").Val(); due != 3 {
			t.Errorf("the lane is due at %v, want 3", due)
		}
		f.Seq++
		c = d.NewCommit()
		c.Take(laneOf("u"), leaving(first))
		c.Read(laneOf("u"), 5)
		_, err = d.Commit(t.Context(), f, c)
		d.must(err)
		if d.exists("lane:t:u") || d.exists("due:t") {
			t.Error("an empty lane stands in its index")
		}
	})
}

// A worker's claims that are no hash let nothing be taken out of a lane.
func TestClaimsBeforePops(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		stamp := d.offer("u", id("job"))
		d.text("running:b")
		f := d.lead("a")
		c := d.NewCommit()
		d.take(c, "b", "u", stamp, 5)
		if _, err := d.Commit(t.Context(), f, c); err == nil {
			t.Error("it is done")
		}
		if got := d.lane("u"); got != "job" {
			t.Errorf("the lane holds %q", got)
		}
		term, err := d.Lead(t.Context(), "a", time.Minute, f.Token)
		d.must(err)
		if term.Seq >= f.Seq || term.Notice == f.Notice {
			t.Errorf("it counts as done: number %d, notices through %s", term.Seq, term.Notice)
		}
	})
}

// What one tenant's keys cannot take is told, and everything else is done.
func TestWrongTypeOfOneTenant(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		stamp := d.offer("u", nil)
		f := d.lead("a")
		for _, key := range []string{"tenant:x", "due:x", "drops"} {
			d.must(d.client.Del(t.Context(), "wc:{q}:"+key).Err())
			d.text(key)
		}
		c := d.NewCommit()
		claim := d.take(c, "a", "u", stamp, 5)
		c.Count("x", "started", 1)
		c.Wake(Lane{Tenant: "x", User: "y", Priority: 1}, 7)
		c.Read(Lane{Tenant: "x", User: "y", Priority: 1}, 7)
		reply, err := d.Commit(t.Context(), f, c)
		d.must(err)
		if len(reply.Errors) != 3 || !slices.Equal(d.claimed("a"), []Claim{claim}) || d.lane("u") != "" {
			t.Errorf("%v, claims %v, lane %q", reply.Errors, d.claimed("a"), d.lane("u"))
		}
		if n := d.client.HGet(t.Context(), "wc:{q}:tenant:t", "started").Val(); n != "1" {
			t.Errorf("the other tenant has started %q", n)
		}
	})
}

// The job under a collapse key is claimed as it is then, even if it was replaced.
func TestClaimFolded(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		d.offer("u", folded("old", "k"))
		f := d.lead("a")
		c := d.NewCommit()
		claim := envelope.Claim{Stamp: "0000000000001", Lane: laneOf("u"), Slot: 5, Spent: 5}
		c.Take(laneOf("u"), leaving("=k"))
		c.ClaimFolded("b", claim, Folded{"t", "u", "k"})
		d.offer("u", folded("new", "k"))
		_, err := d.Commit(t.Context(), f, c)
		d.must(err)
		jobs, err := d.ClaimedJobs(t.Context(), []ClaimRef{{Worker: "b", Claim: claim}})
		d.must(err)
		if e, err := envelope.Open(jobs[0]); err != nil || e.ID != "new" {
			t.Errorf("claimed %q, %v", jobs[0], err)
		}
		if d.exists("fold:t:u") || d.exists("lane:t:u") {
			t.Error("it can be claimed again")
		}
	})
}

// While a hash slot moves to another node, a script refuses or sees all of the queue: it
// never runs on a node that holds a part.
func TestResharding(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	cluster := redistest.StartNodes(t, 2)
	client, ctx := cluster.Client(t), t.Context()
	s, err := New(client, "q")
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{Store: s, t: t, client: client, read: "0"}
	d.must(d.Store.Pause(ctx, "t:x", 1, Note{}))
	f := d.lead("a")
	slot := client.ClusterKeySlot(ctx, "wc:{q}:").Val()
	owner, other := cluster.Owner(t, "wc:{q}:meta"), cluster.Nodes[0]
	if other == owner {
		other = cluster.Nodes[1]
	}
	from, to := owner.Client(t), other.Client(t)
	node := func(c *redis.Client) string { name, _ := c.Do(ctx, "CLUSTER", "MYID").Text(); return name }
	var stamps []string
	for range 6 {
		stamps = append(stamps, d.offer("u", nil))
	}
	d.must(to.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", node(from)).Err())
	d.must(from.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", node(to)).Err())
	try := func() {
		c := s.NewCommit()
		d.take(c, "a", "u", stamps[0], 5)
		if _, err := d.Commit(ctx, f, c); err == nil {
			f.Seq, stamps = f.Seq+1, stamps[1:]
		} else if !strings.Contains(err.Error(), "TRYAGAIN") {
			t.Errorf("commit: %v", err)
		}
		if reply, err := s.Beat(ctx, Beat{Worker: "a", Lease: time.Second}); err == nil && reply.Leader != f.Token || err != nil && !strings.Contains(err.Error(), "TRYAGAIN") {
			t.Errorf("beat: %+v, %v", reply, err)
		}
		if term, err := s.Lead(ctx, "b", time.Second, ""); err == nil && term.Token != "" || err != nil && !strings.Contains(err.Error(), "TRYAGAIN") {
			t.Errorf("lead: %+v, %v", term, err)
		}
	}
	try()
	host, port, _ := strings.Cut(other.Addr, ":")
	keys, err := from.Do(ctx, "CLUSTER", "GETKEYSINSLOT", slot, 1000).StringSlice()
	d.must(err)
	for _, key := range keys {
		d.must(from.Do(ctx, "MIGRATE", host, port, key, 0, 5000).Err())
		try()
	}
	for _, c := range []*redis.Client{to, from} {
		d.must(c.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", node(to)).Err())
	}
	client.ReloadState(ctx)
	redistest.Eventually(t, 5*time.Second, "the cluster is whole", func() bool {
		return client.Ping(ctx).Err() == nil && client.HExists(ctx, "wc:{q}:meta", "leader").Val()
	})
	if waiting, held := client.LLen(ctx, "wc:{q}:lane:t:u").Val(), len(d.claimed("a")); int(waiting) != len(stamps) || int(waiting)+held != 6 {
		t.Errorf("%d wait and %d are claimed of 6, want %d to wait", waiting, held, len(stamps))
	}
	if len(stamps) == 6 || len(stamps) == 0 && len(keys) > 3 {
		t.Logf("%d of 6 commits were refused", len(stamps))
	}
}

// A commit lowers the bounds of all lanes that it is told of, each where it stands in its index, and adds none. A
// bound that it writes beside that holds.
func TestBoundsOfACommit(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		of := func(user string) Lane { return Lane{Tenant: "t", User: user, Priority: 1} }
		for _, user := range []string{"u", "v", "w", "early"} {
			d.offer(user, nil)
		}
		f := d.lead("a")
		due := func(user string) int64 { return int64(d.client.ZScore(t.Context(), "wc:{q}:due:t", user).Val()) }
		for user, at := range map[string]int64{"u": 100, "v": 100, "w": 100, "early": 3} {
			d.must(d.client.ZAdd(t.Context(), "wc:{q}:due:t", redis.Z{Score: float64(at), Member: user}).Err())
		}
		c := d.NewCommit()
		for _, user := range []string{"u", "v", "w", "early", "nobody", "u"} {
			c.Sooner(of(user), 50)
		}
		c.Bound(of("w"), 70)
		c.Wake(of("x"), 60)
		c.Wake(of("y"), 60)
		_, err := d.Commit(t.Context(), f, c)
		d.must(err)
		for user, want := range map[string]int64{"u": 50, "v": 50, "w": 70, "early": 3, "nobody": 0, "x": 60, "y": 60} {
			if at := due(user); at != want {
				t.Errorf("the lane of %s is due at %d, want %d", user, at, want)
			}
		}
	})
}

// All jobs of a large worker come back with one commit: Lua passes only some thousand values to a command.
func TestALargeCommit(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		many := 4500
		if strings.HasSuffix(t.Name(), "miniredis") {
			many = 300 // each command takes miniredis as long as there are keys: more are too many for a busy machine
		}
		f := d.lead("a")
		c := d.NewCommit()
		now := time.Now().UnixMicro()
		var claims []any
		for i := range many {
			lane := Lane{Tenant: "t", User: fmt.Sprint("u", i), Priority: 1}
			claim := Claim{Stamp: fmt.Sprintf("%013x", now+int64(i)), Lane: lane, Slot: now, Spent: now}
			claims = append(claims, claim.String(), "job")
			c.EndClaim("w", claim)
			c.PutFirst(lane, "entry", envelope.Place{Slot: 1, Stamp: "0000000000001"}, now)
		}
		for chunk := range slices.Chunk(claims, 2000) {
			d.must(d.client.HSet(t.Context(), "wc:{q}:running:w", chunk...).Err())
		}
		scopes := make([]string, 2*many)
		for i := range scopes {
			scopes[i] = fmt.Sprint("u:t:u", i)
			d.must(d.client.ZAdd(t.Context(), "wc:{q}:paused", redis.Z{Score: 1, Member: scopes[i]}).Err())
		}
		c.Unpause(scopes, true)
		reply, err := d.Commit(t.Context(), f, c)
		if err != nil || len(reply.Errors) > 0 {
			t.Fatal(err, reply.Errors)
		}
		held, lanes := d.client.HLen(t.Context(), "wc:{q}:running:w").Val(), d.client.ZCard(t.Context(), "wc:{q}:due:t").Val()
		if paused := d.client.ZCard(t.Context(), "wc:{q}:paused").Val(); held != 0 || lanes != int64(many) || paused != 0 {
			t.Errorf("%d claims and %d pauses are left, and %d lanes of %d are in their index", held, paused, lanes, many)
		}
	})
}
