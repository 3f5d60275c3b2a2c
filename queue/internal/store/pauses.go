package store

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// A pause is a member of one sorted set: the scope, and until when nothing of it starts. The field "paused" of meta
// says whether there is any, so that an offer need not look. A pause that people make is a change which fences: it
// holds from the instant at which it was acknowledged. One that a handler's answer makes is written by the commit that
// takes the job back ([Commit.Pause]).

// A Note says who has done something, and why. Both are for people, and may be empty.
type Note struct{ Author, Reason string }

// pauseNote writes who paused until when, and why. The end of the pause is part of it, so that a reader sees whether
// the note belongs to the pause that holds.
func pauseNote(until int64, n Note) string {
	return Pack(strconv.FormatInt(until, 10), n.Author, n.Reason)
}

// Pause lets nothing of a scope start before an instant, in the place of any pause that the scope has; an instant that
// has passed lifts the pause. It takes three round trips. When it has returned the pause holds: commits that were
// decided before are refused. Jobs that are claimed already start.
//
// Pauses of other scopes that have ended are forgotten by the way, as the leader forgets them ([Commit.Unpause]).
func (s *Store) Pause(ctx context.Context, scope string, until int64, n Note) error {
	view, err := s.Look(ctx, nil)
	if err != nil {
		return err
	}
	paused := s.key.Paused()
	over, err := s.client.ZRangeByScore(ctx, paused, &redis.ZRangeBy{Min: "-inf", Max: strconv.FormatInt(view.Now, 10), Count: scanStep}).Result()
	if err != nil {
		return err
	}
	c := s.newChange()
	c.tell(NoticePaused, scope)
	c.fences = true
	c.always()
	c.do("ZREMRANGEBYSCORE", paused, "-inf", view.Now)
	for _, ended := range over {
		c.do("HDEL", s.key.Notes(), ended)
	}
	if until > view.Now {
		c.do("ZADD", paused, until, scope)
		c.do("HSET", s.key.Notes(), scope, pauseNote(until, n))
		c.do("HSET", s.key.Meta(), "paused", 1)
	} else {
		c.do("ZREM", paused, scope)
		c.do("HDEL", s.key.Notes(), scope)
	}
	c.when(0, "ZCARD", []string{paused})
	c.do("HSET", s.key.Meta(), "paused", 0)
	_, err = c.apply(ctx)
	return err
}

// Pauses returns the scopes that are paused, and until when; pauses that have ended may be among them. It takes one
// round trip for each few hundred of them.
func (s *Store) Pauses(ctx context.Context) (map[string]int64, error) {
	all := make(map[string]int64)
	err := walk(func(cursor uint64) *redis.ScanCmd { return s.client.ZScan(ctx, s.key.Paused(), cursor, "", scanStep) },
		func(found []string) { maps.Copy(all, pairs(found)) })
	return all, asBroken(err, s.key.Paused(), "zset")
}

// A Paused is a pause that has not ended.
type Paused struct {
	Scope string
	Until int64
	Note
}

// PausesNow returns the pauses that have not ended, those that end first before the others, for people. The note of
// a pause whose end was moved by somebody without a note is not known. It takes three round trips, and more where
// hundreds of scopes are paused.
func (s *Store) PausesNow(ctx context.Context) ([]Paused, error) {
	view, err := s.Look(ctx, nil)
	if err != nil {
		return nil, err
	}
	pauses, err := s.Pauses(ctx)
	if err != nil {
		return nil, err
	}
	notes := make(map[string]string)
	err = walk(func(cursor uint64) *redis.ScanCmd { return s.client.HScan(ctx, s.key.Notes(), cursor, "", scanStep) },
		func(found []string) {
			for i := 0; i+1 < len(found); i += 2 {
				notes[found[i]] = found[i+1]
			}
		})
	if err != nil {
		return nil, err
	}
	var all []Paused
	for scope, until := range pauses {
		if until <= view.Now {
			continue
		}
		p := Paused{Scope: scope, Until: until}
		if words := Words(notes[scope]); len(words) == 3 && words[0] == strconv.FormatInt(until, 10) {
			p.Note = Note{words[1], words[2]}
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Paused) int { return int(min(1, max(-1, a.Until-b.Until))) })
	return all, nil
}

// Pause lets a scope wait at least until an instant: a longer pause stays. It is for pauses that handlers ask for. It
// raises no number of changes: the leader that makes it knows it.
func (c *Commit) Pause(scope string, until int64) {
	c.op(&c.extra, "ZADD", c.own(c.s.key.Paused(), "zset"), "GT", until, scope)
	c.op(&c.extra, "HSET", c.s.key.Meta(), "paused", "1")
}

// Explain keeps why a scope waits until an instant. Readers pass over a note whose instant is not that of the pause.
func (c *Commit) Explain(scope string, until int64, reason string) {
	c.op(&c.extra, "HSET", c.s.key.Notes(), scope, pauseNote(until, Note{Reason: reason}))
}

// Unpause forgets pauses that have ended. If there are no others, which all says, offers stop looking for pauses. A
// pause that an Inspector makes meanwhile refuses the commit.
func (c *Commit) Unpause(scopes []string, all bool) {
	members := make([]any, len(scopes))
	for i, scope := range scopes {
		members[i] = scope
	}
	c.opEach(&c.extra, "ZREM", c.keys.number(c.own(c.s.key.Paused(), "zset")), nil, members)
	c.opEach(&c.extra, "HDEL", c.keys.number(c.s.key.Notes()), nil, members)
	if all {
		c.op(&c.extra, "HSET", c.s.key.Meta(), "paused", "0")
	}
}
