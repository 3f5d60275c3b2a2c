package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// Policies are kept as the text that somebody has written, with a version that only grows. Who writes new ones says which
// version they replace, so that two people cannot overwrite each other. All versions of some time are kept
// in a stream, with their authors.

// Policies returns the source of the policies in force and its version, in one round trip; 0 if there never
// were any, or if Redis has lost them. The field "policies" of meta knows the version that they had: a caller
// that has seen a higher one does not take their absence for no rules.
func (s *Store) Policies(ctx context.Context) (source string, version int64, err error) {
	cmd := s.client.HMGet(ctx, s.key.Policies(), "source", "version")
	source, version = readPolicies(cmd)
	return source, version, asBroken(cmd.Err(), s.key.Policies(), "hash")
}

// PolicyVersion returns the version of the policies in force, in one round trip; 0 for none.
func (s *Store) PolicyVersion(ctx context.Context) (int64, error) {
	version, err := s.client.HGet(ctx, s.key.Policies(), "version").Int64()
	return version, ignoreNil(err)
}

// readPolicies reads the two fields that Policies asks for.
func readPolicies(cmd *redis.SliceCmd) (source string, version int64) {
	texts := textsOf(cmd.Val())
	if len(texts) < 2 {
		return "", 0
	}
	return texts[0], number(texts[1])
}

// NewPolicies are policies to be put in force.
type NewPolicies struct {
	Source   string // which the caller has checked: the store keeps it as it is
	Expected int64  // the version in force until now; negative for any, 0 for none
	Note            // who sets them, and why: for the history

	// Partitions divides a queue that is new; 0 and 1 do not.
	Partitions int
}

// ErrPoliciesChanged is returned if policies of another version are in force than expected.
var ErrPoliciesChanged = errors.New("queue: other policies were put in force meanwhile")

// SetPolicies puts the source of policies in force, under a version higher than all
// before: an instant, so that a version that a failover has lost is not given again. It reports false if
// the same source is in force already, and fails with [ErrPoliciesChanged] if the version in force is
// not the expected one.
//
// It takes three round trips, and more where somebody else sets policies at that moment. When it has returned no job
// starts by a decision under the old policies: Redis refuses the leader's commits until it has read the new ones.
func (s *Store) SetPolicies(ctx context.Context, p NewPolicies) (changed bool, err error) {
	for {
		view, err := s.Look(ctx, nil)
		if err != nil {
			return false, err
		}
		before, old, err := s.Policies(ctx)
		if err != nil || old > 0 && before == p.Source && view.Policies == old {
			return false, err
		}
		if p.Expected >= 0 && p.Expected != old {
			return false, ErrPoliciesChanged
		}
		n, fixed, err := s.divided(ctx)
		switch {
		case err != nil:
			return false, err
		case fixed && p.Partitions > 0 && p.Partitions != n:
			return false, fmt.Errorf("it has %d partitions, not %d: %w", n, p.Partitions, ErrDivided)
		}
		v := PolicyVersion{Version: max(old+1, view.Policies+1, view.Now), Source: p.Source, Note: p.Note}
		changed, err = s.putInForce(ctx, old, v, max(n, p.Partitions), !fixed)
		if err != nil || changed {
			return changed, err
		}
	}
}

// putInForce puts policies in force in the place of those of another version, of a queue with so many partitions. It reports false,
// and does nothing, if others are in force; or if somebody uses the queue already, where it has to be unused.
func (s *Store) putInForce(ctx context.Context, before int64, p PolicyVersion, partitions int, unused bool) (done bool, err error) {
	was := ""
	if before > 0 {
		was = strconv.FormatInt(before, 10)
	}
	c := s.newChange()
	c.tell(NoticePolicies, strconv.FormatInt(p.Version, 10))
	c.fences = true
	c.when(was, "HGET", []string{s.key.Policies()}, "version")
	if unused {
		c.and("", "HGET", []string{s.key.Meta()}, "schema")
	}
	c.do("HSET", s.key.Policies(), "source", p.Source, "version", p.Version, "partitions", partitions)
	c.do("XADD", s.key.History(), "MAXLEN", "~", historyLen, "*", "version", p.Version, "source", p.Source, "author", p.Author, "reason", p.Reason)
	c.do("HSET", s.key.Meta(), "policies", p.Version)
	steps, err := c.apply(ctx)
	return steps[0], err
}

// A PolicyVersion is a source of policies that was put in force at some time.
type PolicyVersion struct {
	Version int64 // also the instant, in µs
	Source  string
	Note
}

// historyLen is about how many versions of the policies are kept.
const historyLen = 1000

// History returns the newest versions of the policies, newest first.
func (s *Store) History(ctx context.Context, n int) ([]PolicyVersion, error) {
	messages, err := s.client.XRevRangeN(ctx, s.key.History(), "+", "-", int64(n)).Result()
	all := make([]PolicyVersion, len(messages))
	for i, m := range messages {
		field := fieldsOf(m)
		all[i] = PolicyVersion{number(field("version")), field("source"), Note{field("author"), field("reason")}}
	}
	return all, err
}
