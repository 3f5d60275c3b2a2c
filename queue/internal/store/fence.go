package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A leader may be frozen, or cut off from Redis, and go on deciding when another worker leads. No clock and no lease
// prevents that. So Redis knows one token, and does only commits that carry it:
//
//	token     the epoch and the name of the worker to whom lead.lua gave the lease last. A leader that was replaced,
//	          and does not know it yet, has an older one: its commits do nothing ([ErrDeposed]).
//	seq       one more than the last commit's. Commits of one leader are done in their order, each once, and
//	          none without the one before it ([OrderError]).
//	changes   the number of the last change that the leader knows of. After another one its decisions may be
//	          against what people have decided ([ErrChanged]).
//	slot      the latest slot that the commit gives. If it lies more than [farthest] ahead, the leader's idea of
//	          the time is wrong ([ErrAhead]).
//
// All four are looked at before anything is written. The lease plays no part: a leader whose lease has run out goes on
// as long as nobody else leads.

// A Fence is what makes a commit fail where somebody else leads or something has changed.
type Fence struct {
	Token string
	// Lease is how long the leader's lease holds from the instant of the commit on.
	Lease time.Duration
	// Seq is one more than that of the last commit.
	Seq int64
	// Changes is the number of the last change that the leader knows of, as meta had it when the leader read
	// the settings.
	Changes int64
	// Notice is the ID of the newest notice of which all effects are in this commit or the ones before: the
	// next leader reads on from there. "" leaves it as it is.
	Notice string
	// Slot is the latest slot that the commit gives, in µs; 0 for none.
	Slot int64
}

// farthest is how far ahead of Redis's clock a slot may lie, in µs: workers far away get slots some seconds
// ahead at most. What lies further comes from a wrong clock.
const farthest = 10_000_000

// A CommitReply says that a commit is done. Of a commit that did nothing only the Reading is known, and Changes after
// [ErrChanged].
type CommitReply struct {
	Reading
	// Lapsed says that the leader's lease had run out before. Offers tell nobody then: the leader reads everything
	// again.
	Lapsed bool
	// Changes is the number of the last change.
	Changes int64
	// Errors name the commands of the last part (extra) that have failed, since a key has another type; all
	// other commands are done.
	Errors []string
	// Looks are what was read behind the writes.
	Looks
}

// The errors of commits that did nothing. After ErrDeposed the term is over. After the other two the leader reads the
// settings, or the time, and decides anew.
var (
	ErrDeposed = errors.New("queue: another worker leads")
	ErrChanged = errors.New("queue: something has changed that the leader does not know of yet")
	ErrAhead   = errors.New("queue: the leader's clock is ahead of Redis's")
)

// A DiffersError names the checks of a commit that failed, by the numbers that its methods have returned: below 0 those
// of [Commit.Take]. The commit did nothing.
type DiffersError struct{ Checks []int }

func (e *DiffersError) Error() string {
	return fmt.Sprintf("queue: %d things are not as the leader saw them", len(e.Checks))
}

// An OrderError says that a commit did nothing since its number was not the next one: the commit that it follows was
// refused, or comes later. Last is the number of the last commit that has happened.
type OrderError struct{ Last int64 }

func (e *OrderError) Error() string {
	return fmt.Sprintf("queue: the last commit is number %d", e.Last)
}

// Send sends a commit, once, behind those that this goroutine has sent before, without waiting for
// them. The returned function waits for the reply, and may be called by another goroutine. It returns one of
// the errors above if the commit did nothing. After any other error it counts as unknown whether the commit has
// happened, or will: the caller takes a new token ([Store.Lead]), and compares the number.
//
// It takes one round trip, reads included. The commit must not be changed until the reply is there.
func (s *Store) Send(ctx context.Context, f Fence, c *Commit) (wait func() (CommitReply, error)) {
	c.gather()
	args := []any{f.Token, f.Lease.Microseconds(), f.Seq, f.Changes, f.Notice, f.Slot - farthest, len(c.keys.keys)}
	n := 0
	for _, l := range c.lists() {
		n += 1 + len(l.args)
	}
	args = slices.Grow(args, n)
	for _, l := range c.lists() {
		args = append(append(args, l.n), l.args...)
	}
	asked := time.Now()
	replied := s.stream(ctx, "commit", slices.Concat(c.keys.keys, c.lanes, c.state), args...)
	return func() (CommitReply, error) {
		reply := readFields(replied(), 2)
		return c.reply(reply, Reading{reply.int(0), asked, time.Now()})
	}
}

// reply reads the reply to a commit: its status is the second value, behind the instant.
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
