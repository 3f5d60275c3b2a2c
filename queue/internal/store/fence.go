package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Redis cannot know who leads rightfully. It knows one token, and does only commits that carry it:
//
//	token     the epoch and the name of the worker to whom lead.lua gave the lease last. A leader that was replaced,
//	          and does not know it yet, has an older one: its commits do nothing ([ErrDeposed]).
//	seq       one more than the last commit's. Commits of one leader are done in their order, each once, and
//	          none without the one before it ([OrderError]).
//	changes   the number of the last change that the leader knows of ([ErrChanged]).
//	slot      the latest slot that the commit gives. If it lies more than [farthest] ahead, the leader's idea of
//	          the time is wrong ([ErrAhead]).
//
// All four are looked at before anything is written.

// A Fence is what makes a commit fail where somebody else leads or something has changed.
type Fence struct {
	Token   string
	Lease   time.Duration
	Seq     int64  // one more than that of the last commit
	Changes int64  // number of the last change that the leader knows of
	Mail    string // the last mail whose effects are in the commit; "" if it is the same as before
	Slot    int64  // the latest slot that the commit gives; 0 for none
}

// farthest is how far ahead of Redis's clock a slot may lie, in µs: far workers get slots some seconds
// ahead at most. What lies further comes from a wrong clock.
const farthest = 10_000_000

// A CommitReply says that a commit is done.
type CommitReply struct {
	Reading
	Lapsed  bool  // the leader's lease had run out before
	Changes int64 // number of the last one
	Errors  []string
	Looks
}

// The errors of commits that did nothing.
var (
	ErrDeposed = errors.New("queue: another worker leads")
	ErrChanged = errors.New("queue: something has changed that the leader does not know of yet")
	ErrAhead   = errors.New("queue: the leader's clock is ahead of Redis's")
)

// A DiffersError names the checks that failed.
type DiffersError struct{ Checks []int }

func (e *DiffersError) Error() string {
	return fmt.Sprintf("queue: %d things are not as the leader saw them", len(e.Checks))
}

// An OrderError says that a commit came before the one it follows.
type OrderError struct{ Last int64 }

func (e *OrderError) Error() string {
	return fmt.Sprintf("queue: the last commit is number %d", e.Last)
}

// Send sends a commit, once, behind those that this goroutine has sent before, without waiting for
// them. The returned function waits for the reply. It returns one of the errors above if the commit
// did nothing, and any other error if nobody knows what became of it.
func (s *Store) Send(ctx context.Context, f Fence, c *Commit) (wait func() (CommitReply, error)) {
	c.gather()
	args := []any{f.Token, f.Lease.Microseconds(), f.Seq, f.Changes, f.Mail, f.Slot - farthest, len(c.keys.keys)}
	lists := []*list{&c.sums, &c.kinds, &c.take, &c.check, &c.folds, &c.claim, &c.write, &c.memo, &c.told, &c.extra, &c.fill, &c.look}
	n := len(args)
	for _, l := range lists {
		n += 1 + len(l.args)
	}
	args = slices.Grow(args, n)
	for _, l := range lists {
		args = append(append(args, l.n), l.args...)
	}
	asked := time.Now()
	replied := s.stream(ctx, "commit", slices.Concat(c.keys.keys, c.lanes, c.state), args...)
	return func() (CommitReply, error) {
		reply := readFields(replied(), 2)
		return c.reply(reply, Reading{reply.int(0), asked, time.Now()})
	}
}

// reply reads the reply to a commit.
func (c *Commit) reply(reply fields, reading Reading) (CommitReply, error) {
	r := CommitReply{Reading: reading}
	if reply.err != nil {
		return r, reply.err
	}
	switch status := reply.text(1); status {
	case "ok":
		if len(reply.values) < 7 {
			return r, fmt.Errorf("queue: malformed reply to a commit")
		}
		r.Lapsed, r.Changes, r.Errors = reply.int(2) == 1, reply.int(3), reply.texts(4)
		r.Looks = c.looksOf(reply.values[5], reply.values[6])
		return r, nil
	case "deposed":
		return r, ErrDeposed
	case "changed":
		r.Changes = reply.int(2)
		return r, ErrChanged
	case "ahead":
		return r, ErrAhead
	case "order":
		return r, &OrderError{reply.int(2)}
	case "differs":
		items, _ := reply.values[2].([]any)
		e := &DiffersError{}
		for _, item := range items {
			n, _ := item.(int64)
			e.Checks = append(e.Checks, int(n))
		}
		return r, e
	default:
		return r, fmt.Errorf("queue: unknown reply %q to a commit", status)
	}
}

// gather turns what was collected into commands.
func (c *Commit) gather() {
	if c.gathered {
		return
	}
	c.gathered = true
	for _, worker := range sortedKeys(c.claims) {
		c.op(&c.claim, "HSET", c.running(worker), c.claims[worker]...)
	}
	for _, worker := range sortedKeys(c.ended) {
		c.op(&c.claim, "HDEL", c.running(worker), c.ended[worker]...)
	}
	for _, worker := range sortedKeys(c.hands) {
		c.told.add(c.keys.number(c.own(c.s.key.Hand(worker), "list")), c.hands[worker])
	}
	var lower list // before bounds are written that are later
	for _, l := range c.lowers {
		flags := []any{"LT"}
		if l.there {
			flags = []any{"XX", "LT"}
		}
		c.op(&lower, "ZADD", l.index, append(flags, c.lowered[l]...)...)
	}
	c.extra = list{lower.n + c.extra.n, append(lower.args, c.extra.args...)}
	for _, r := range c.reads {
		var taken takes
		if !c.put[r.lane] { // otherwise what a check reads is not what stays
			taken = c.taken[r.lane]
		}
		if taken.number > 0 {
			c.take.args[taken.more] = r.n
		}
		c.fill.add(c.keys.number(c.s.key.Lane(r.lane)), c.keys.number(c.s.key.Due(r.lane.Tenant, r.lane.Priority)),
			Escape(r.lane.User), r.n, taken.number)
	}
	for _, l := range c.looks {
		c.look.add(len(l.keys)+len(l.args), l.command, len(l.keys))
		for _, key := range l.keys {
			c.look.args = append(c.look.args, c.keys.number(key))
		}
		c.look.args = append(c.look.args, l.args...)
	}
	counters := make([][2]string, 0, len(c.counters))
	for counter, by := range c.counters {
		if by != 0 {
			counters = append(counters, counter)
		}
	}
	slices.SortFunc(counters, func(a, b [2]string) int { return strings.Compare(a[0]+a[1], b[0]+b[1]) })
	var amounts []any
	for _, counter := range counters {
		if counter[0] == c.s.key.Meta() {
			c.sums.add(counter[1])
			amounts = append(amounts, c.counters[counter])
			continue
		}
		c.op(&c.extra, "HINCRBY", counter[0], counter[1], c.counters[counter])
	}
	c.sums.args = append(c.sums.args, amounts...)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
