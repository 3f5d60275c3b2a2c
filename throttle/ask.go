package throttle

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// turnsOf ends the key of the turns that callers take at a subject.
const turnsOf = "%turns"

// goesOn reports whether a request is one more of what the one before asks for: the same caller wants another slot of the same subjects,
// for the same costs, as far behind.
func (r request) goesOn(before request) bool {
	return r.gap == before.gap && slices.EqualFunc(r.subjects, before.subjects, func(a, b Subject) bool { return a.Cost == b.Cost && a.same(b) })
}

// same reports whether two subjects are one under the same rules.
func (s Subject) same(other Subject) bool {
	return s.Key == other.Key && s.Slack == other.Slack && slices.Equal(s.Rules, other.Rules)
}

// mostAsked bounds how many requests one run of ask.lua answers.
const mostAsked = 1024

// ask answers the requests of a caller that takes turns, with ask.lua: in one run, if all keys are on one server.
func (s *redisStore) ask(ctx context.Context, calls []*call) {
	var all []*question
	open := make(map[string]*question, 1)
	for _, c := range calls {
		keys, tag, err := s.place(c)
		if err != nil {
			c.fail(err)
			continue
		}
		q := open[tag]
		if q == nil || len(q.calls) == mostAsked {
			q = &question{}
			open[tag], all = q, append(all, q)
		}
		q.add(c, keys)
	}
	for _, q := range all {
		if err := q.run(ctx, s); err != nil {
			for _, c := range q.calls {
				c.fail(err)
			}
		}
	}
}

// A question is one run of ask.lua.
type question struct {
	calls    []*call
	subjects []Subject
	names    []string // keys of the subjects
	lists    []string // keys of their logs that may be long
	runs     []askRun
}

// An askRun is so many requests in a row that differ in nothing.
type askRun struct {
	calls  []*call
	places []int // of the subjects in the question, from 1
}

// add puts a call into the question.
func (q *question) add(c *call, keys []string) {
	n := len(q.calls)
	q.calls = append(q.calls, c)
	if n > 0 && c.goesOn(q.calls[n-1].request) {
		run := &q.runs[len(q.runs)-1]
		run.calls = append(run.calls, c)
		return
	}
	run := askRun{calls: []*call{c}}
	for i, subject := range c.subjects {
		at := slices.IndexFunc(q.subjects, subject.same)
		if at < 0 {
			at = len(q.subjects)
			q.subjects, q.names = append(q.subjects, subject), append(q.names, keys[i])
			q.lists = lists(q.lists, keys[i], subject.Rules)
		}
		run.places = append(run.places, at+1)
	}
	q.runs = append(q.runs, run)
}

// keys are those of the script.
func (q *question) keys() []string {
	keys := slices.Clone(q.names)
	for _, name := range q.names {
		keys = append(keys, name+turnsOf)
	}
	return append(keys, q.lists...)
}

// text is the argument of the script.
func (q *question) text(now int64) ([]byte, error) {
	of := q.calls[0].request
	subjects, runs := make([]json.RawMessage, len(q.subjects)), make([][4]any, len(q.runs))
	for i, subject := range q.subjects {
		subjects[i] = append(appendRules(strconv.AppendInt([]byte{'['}, subject.weight(), 10), subject, now), ']')
	}
	for i, run := range q.runs {
		costs := make([]int, len(run.places))
		for k, subject := range run.calls[0].subjects {
			costs[k] = subject.Cost
		}
		runs[i] = [4]any{len(run.calls), append([]int{}, run.places...), costs, run.calls[0].gap}
	}
	return json.Marshal([]any{of.by, of.bounds.after.Microseconds(), of.bounds.within.Microseconds(), of.more, subjects, runs})
}

// run asks the script, and decides the calls.
func (q *question) run(ctx context.Context, s *redisStore) error {
	text, err := q.text(s.clock().UnixMicro())
	if err != nil {
		return err
	}
	reply, err := s.asker.Run(ctx, s.client, q.keys(), text).Slice()
	if err != nil {
		return err
	}
	return q.read(reply)
}

// read decides the calls by the reply of the script.
func (q *question) read(all []any) error {
	r := reply{left: all}
	now := r.next()
	for _, run := range q.runs {
		got := r.next()
		if r.err != nil && !errors.Is(r.err, errShort) { // of this run alone
			for _, c := range run.calls {
				c.fail(r.err)
			}
			r.err = nil
			continue
		}
		run.read(now, int(got), &r)
	}
	return r.err
}

// read decides the calls of a run, of which so many have got a slot.
func (run askRun) read(now int64, got int, r *reply) {
	slots := make([]int64, min(max(0, got)+1, len(run.calls))) // those that it got, and one that it did not get
	for i := range slots {
		slots[i] = r.next()
	}
	again, refusal := r.next(), r.next()
	var objectors map[int]place
	for n := r.next(); n > 0 && r.err == nil; n-- {
		if objectors == nil {
			objectors = make(map[int]place)
		}
		i := int(r.next()) - 1
		_, objectors[i] = whom(r.next())
	}
	if r.err != nil {
		return
	}
	for i, c := range run.calls {
		found := ruling{now: now, slot: slots[min(i, len(slots)-1)], full: now, next: now, binding: nowhere, objector: nowhere, taken: i < got}
		found = found.timed()
		if !found.taken || i == len(run.calls)-1 {
			found.again = again
		}
		if objector, objected := objectors[i]; objected {
			found.objector = objector
		}
		if !found.taken && refusal != 0 {
			found.outcome = Dropped
			_, found.binding = whom(refusal)
		}
		c.decision, c.err = c.request.decision(found)
	}
}

// A reply is what is left to read of the reply of a script, and the first error.
type reply struct {
	left []any
	err  error
}

// errShort is returned for a reply that ends too early.
var errShort = errors.New("a reply that is too short")

// next returns the next number; 0 if there is none.
func (r *reply) next() int64 {
	if len(r.left) == 0 || r.err != nil {
		r.err = cmp.Or(r.err, errShort)
		return 0
	}
	first := r.left[0]
	r.left = r.left[1:]
	n, ok := first.(int64)
	if !ok {
		r.err = fmt.Errorf("%v", first)
	}
	return n
}
