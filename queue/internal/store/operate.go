package store

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// Registry is the sorted set of all queues: name → when a worker or its policies were heard
// of last, in µs.
const Registry = "wc:queues"

// Register notes that there is the queue.
func (s *Store) Register(ctx context.Context) error {
	reading, err := s.Clock(ctx)
	if err != nil {
		return err
	}
	return s.client.ZAdd(ctx, Registry, redis.Z{Score: float64(reading.Now), Member: s.Queue}).Err()
}

// Queues returns the names of all queues that were registered, in alphabetical order.
func Queues(ctx context.Context, client redis.UniversalClient) ([]string, error) {
	names, err := client.ZRange(ctx, Registry, 0, -1).Result()
	slices.Sort(names)
	return names, err
}

// Known reports whether anybody has used the queue.
func (s *Store) Known(ctx context.Context) (bool, error) {
	n, err := s.client.Exists(ctx, s.key.Meta()).Result()
	if err != nil || n > 0 {
		return n > 0, err
	}
	_, err = s.client.ZScore(ctx, Registry, s.Queue).Result()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil, err
}

// A Note says who has done something, and why.
type Note struct{ Author, Reason string }

// A Paused is a pause that has not ended.
type Paused struct {
	Scope string
	Until int64
	Note
}

// pauseNote writes who paused until when, and why.
func pauseNote(until int64, n Note) string {
	return Pack(strconv.FormatInt(until, 10), n.Author, n.Reason)
}

// PausesNow returns the pauses that have not ended, those that end first before the others.
// The note of one that was made longer by somebody else is not known.
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

// A PolicyVersion is a source of policies that was put in force.
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

// A UserView is a user with waiting jobs.
type UserView struct {
	User    string
	Waiting int
	Next    int64 // no job of it starts before, as far as Redis was told
}

// Users returns users of a tenant with waiting jobs, in the order in which they are due,
// from a place on, n at most.
func (s *Store) Users(ctx context.Context, tenant string, from, n int) ([]UserView, error) {
	next := make(map[string]int64)
	for priority := range suffixes {
		page, err := s.client.ZRangeWithScores(ctx, s.key.Due(tenant, priority), 0, int64(from+n-1)).Result()
		if err != nil && !wrongType(err) {
			return nil, err
		}
		for _, b := range bounded(page) {
			user := Unescape(b.Name)
			if at, known := next[user]; !known || b.At < at {
				next[user] = b.At
			}
		}
	}
	var users []UserView
	for user, at := range next {
		users = append(users, UserView{User: user, Next: at})
	}
	slices.SortFunc(users, func(a, b UserView) int {
		if a.Next != b.Next {
			return int(min(1, max(-1, a.Next-b.Next)))
		}
		return slices.Compare([]byte(a.User), []byte(b.User))
	})
	users = users[min(from, len(users)):min(from+n, len(users))]
	var lanes []Lane
	for _, u := range users {
		for priority := range suffixes {
			lanes = append(lanes, Lane{Tenant: tenant, User: u.User, Priority: priority})
		}
	}
	lengths, err := s.Lengths(ctx, lanes)
	for i, n := range lengths {
		users[i/len(suffixes)].Waiting += int(n)
	}
	return users, err
}

// A LaterView is a job that waits for its time.
type LaterView struct {
	Lane Lane
	At   int64
	Job  string
}

// LaterPage returns jobs that wait for their time in the order in which it comes, from a
// place on, n at most.
func (s *Store) LaterPage(ctx context.Context, from, n int) ([]LaterView, error) {
	page, err := s.client.ZRangeWithScores(ctx, s.key.Later(), int64(from), int64(from+n-1)).Result()
	var all []LaterView
	for _, b := range bounded(page) {
		lane, job, bad := ParseLater(b.Name)
		if bad == nil {
			all = append(all, LaterView{lane, b.At, job})
		}
	}
	return all, err
}
