package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Commits are the leader's. What anybody else changes in more than one key is a change: a failed attempt, a job
// that is revived or purged, policies, a pause, a repair. It is one script (change.lua), done at one instant:
//
//	step   conditions   commands whose replies have to be as expected; otherwise the step is left out
//	       musts        commands that may fail, for lack of memory or for a key of another type:
//	                    one that fails ends the step, before anything else of it
//	       commands     the rest; where one fails, the others are done, and the change says so
//
// Whoever makes a change has read first, and the conditions say what must still be so. A change that turns
// out to have done nothing is made again with what is there by then. So most changes take a round trip to read and one
// to write, and more where others change the same at that moment.
//
// A change that fences raises the number of changes in meta. Every commit carries the number that the leader knows:
// so Redis refuses all commits until the leader has read the settings again. That is why a pause holds from the
// instant at which it was acknowledged.

// A change is what somebody other than the leader has decided: steps, each of which is
// done if its conditions hold, and a notice that tells the leader. It is built by its methods, which ask
// Redis nothing, and made by apply.
type change struct {
	s       *Store
	keys    *keyList
	notices []any // subject, text, …: written as one entry if a step was done
	kinds   []any // keys of the queue itself, each with its type
	fences  bool  // the leader must know before it commits anything more
	steps   []step
}

// A step is lists of words, each after its length. Conditions are looked at in their order, up to the first that does
// not hold. The types of the keys of musts are looked at before: if one of them is wrong the step does nothing.
type step struct{ conditions, musts, commands []any }

// appendList adds a list to others, after its length.
func appendList(lists []any, words ...any) []any { return append(append(lists, len(words)), words...) }

// newChange returns a change without steps.
func (s *Store) newChange() *change {
	return &change{s: s, keys: newKeyList(s.key.Meta(), s.key.Notices())}
}

// tell adds a notice to the leader, unless there is the same already. Subjects get numbers, since the fields of an
// entry become a map when they are read: two of the same name would be one.
func (c *change) tell(subject, text string) {
	for i := 0; i < len(c.notices); i += 2 {
		if c.notices[i+1] == text {
			return
		}
	}
	c.notices = append(c.notices, subject+" "+strconv.Itoa(len(c.notices)), text)
}

// own notes that a key of the queue itself is needed, and returns it. Where it has another type nothing is done,
// and the change fails with a [BrokenKeyError].
func (c *change) own(key, kind string) string {
	c.kinds = append(c.kinds, c.key(key), kind)
	return key
}

// always begins a step without a condition.
func (c *change) always() { c.steps = append(c.steps, step{}) }

// when begins a step that is done if a command on keys replies as expected. The reply of
// a command that finds nothing is "".
func (c *change) when(want any, command string, keys []string, args ...any) {
	c.always()
	c.and(want, command, keys, args...)
}

// and adds a condition to the last step. It is looked at if those before it hold: so only
// the last one may change something.
func (c *change) and(want any, command string, keys []string, args ...any) {
	words := []any{want, command}
	for _, key := range keys {
		words = append(words, c.key(key))
	}
	last := &c.steps[len(c.steps)-1]
	last.conditions = appendList(last.conditions, append(words, args...)...)
}

// must adds a command on a key to the last step, which goes no further if it fails. It is one of RPUSH, ZADD, HSET and
// XADD: the script knows the types that these need.
func (c *change) must(command, key string, args ...any) {
	last := &c.steps[len(c.steps)-1]
	last.musts = appendList(last.musts, append([]any{command, c.key(key)}, args...)...)
}

// do adds a command on a key to the last step. If it fails, the others are done, and apply returns an error beside the
// steps.
func (c *change) do(command, key string, args ...any) {
	last := &c.steps[len(c.steps)-1]
	last.commands = appendList(last.commands, append([]any{command, c.key(key)}, args...)...)
}

// key declares a key, which then can stand among words.
func (c *change) key(key string) string {
	c.keys.number(key)
	return key
}

// count adds to a counter of a tenant and of the queue, with the last step.
func (c *change) count(tenant, counter string, by int) {
	c.do("HINCRBY", c.s.key.Meta(), counter, by)
	c.do("HINCRBY", c.s.key.Tenant(tenant), counter, by)
}

// record notes that a job was dropped, and why, with the last step.
func (c *change) record(lane Lane, reason, job string, now int64) {
	c.do("XADD", c.s.key.Drops(), dropRecord(dropsKept, lane, reason, "", job, now)...)
	c.do("HINCRBY", c.s.key.Meta(), droppedFor+reason, 1)
}

// apply makes the change, in one round trip, and reports which steps were done, by their numbers from 0. It may be
// called once. It returns an error with the steps if some commands have failed, and an error without steps if nothing
// was done or the outcome is unknown.
func (c *change) apply(ctx context.Context) (done map[int]bool, err error) {
	args := appendList([]any{Schema, flag(c.fences), len(c.steps)}, c.kinds...)
	args = appendList(args, c.notices...)
	for _, s := range c.steps {
		args = appendList(append(args, s.conditions...))
		args = appendList(append(args, s.musts...))
		args = appendList(append(args, s.commands...))
	}
	reply := readFields(c.s.runOnce(ctx, "change", c.keys.keys, args...), 3)
	if reply.err != nil {
		return nil, reply.err
	}
	done = make(map[int]bool)
	numbers, _ := reply.values[1].([]any)
	for _, number := range numbers {
		n, _ := number.(int64)
		done[int(n-1)] = true
	}
	if failed := reply.texts(2); len(failed) > 0 {
		return done, fmt.Errorf("queue: the change was made only in part: %w", errors.New(strings.Join(failed, "; ")))
	}
	return done, nil
}
