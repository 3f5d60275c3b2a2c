package store

import (
	"context"
	"errors"
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
func (s *Store) SetPolicies(ctx context.Context, p NewPolicies) (bool, error) {
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
		was := ""
		if old > 0 {
			was = strconv.FormatInt(old, 10)
		}
		version := max(old+1, view.Policies+1, view.Now)
		c := s.newChange()
		c.tell(NoticePolicies, strconv.FormatInt(version, 10))
		c.fences = true
		c.when(was, "HGET", []string{s.key.Policies()}, "version")
		c.do("HSET", s.key.Policies(), "source", p.Source, "version", version)
		c.do("XADD", s.key.History(), "MAXLEN", "~", historyLen, "*", "version", version, "source", p.Source, "author", p.Author, "reason", p.Reason)
		c.do("HSET", s.key.Meta(), "policies", version)
		done, err := c.apply(ctx)
		if err != nil || done[0] {
			return true, err
		}
	}
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
