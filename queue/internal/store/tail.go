package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// What happens in a queue is told in streams, which are short and read by blocking. Drops are always told. Starts and
// ends of attempts, and offers, are told only while somebody listens: a field of meta says until when, workers read it
// with their beats, and offer.lua with each offer. A listener that dies is forgotten when that instant has passed.

// Listen says for how long somebody listens to the events of workers, or records offers, from now on. The newest call
// holds: all listeners call it with the same patience, again and again. It takes two round trips.
func (s *Store) Listen(ctx context.Context, what Listening, patience time.Duration) error {
	view, err := s.Look(ctx, nil)
	if err != nil {
		return err
	}
	pipe := s.client.TxPipeline()
	pipe.HSet(ctx, s.key.Meta(), string(what), view.Now+patience.Microseconds())
	pipe.PExpire(ctx, s.key.Events(), time.Minute)
	pipe.PExpire(ctx, s.key.Offers(), time.Minute)
	_, err = pipe.Exec(ctx)
	return err
}

// Listening is what is listened to: the name of a field of meta.
type Listening string

const (
	ToEvents Listening = "listened" // of workers
	ToOffers Listening = "recorded" // as they come to the door
)

// eventsKept is about how many entries the stream of events holds. A listener that is further behind misses some.
const eventsKept = 1000

// TellEvents writes events, which somebody listens to, as one entry, in one round trip. The stream expires a minute
// after the last one.
func (s *Store) TellEvents(ctx context.Context, events string) error {
	pipe := s.client.TxPipeline()
	pipe.XAdd(ctx, &redis.XAddArgs{Stream: s.key.Events(), MaxLen: eventsKept, Approx: true, Values: []any{"events", events}})
	pipe.PExpire(ctx, s.key.Events(), time.Minute)
	_, err := pipe.Exec(ctx)
	return err
}

// A Follower reads streams from where they ended when it was made. It has a connection of its own, on which it blocks;
// whoever makes it closes it. One goroutine uses it.
type Follower struct {
	waits   redis.UniversalClient
	done    func()   // closes the connection
	streams []string // keys
	last    []string // of each stream the ID of the last entry that was read
}

// FollowEvents returns a follower of events and drops.
func (s *Store) FollowEvents(ctx context.Context) (*Follower, error) {
	return s.follow(ctx, s.key.Events(), s.key.Drops(), s.key.Refused())
}

// FollowOffers returns a follower of offers.
func (s *Store) FollowOffers(ctx context.Context) (*Follower, error) {
	return s.follow(ctx, s.key.Offers())
}

// follow returns a follower of streams, from their newest messages on.
func (s *Store) follow(ctx context.Context, streams ...string) (*Follower, error) {
	f := &Follower{streams: streams}
	for _, stream := range streams {
		newest, err := s.client.XRevRangeN(ctx, stream, "+", "-", 1).Result()
		if err != nil {
			return nil, err
		}
		last := "0-0"
		if len(newest) > 0 {
			last = newest[0].ID
		}
		f.last = append(f.last, last)
	}
	f.waits, f.done = Dedicated(s.client, 1)
	return f, nil
}

// Close closes the connection that the follower waits on.
func (f *Follower) Close() { f.done() }

// A Telling is one entry of a stream: events, a drop, or offers.
type Telling struct {
	Events string      // of workers, as one of them has told them; "" for none
	Drop   *Record     // of a dropped or refused job; nil for none
	Offers []OfferView // of one batch
	Total  int64       // jobs offered since the beginning, these included: a gap shows what was missed
}

// An OfferView is a job as it was offered.
type OfferView struct {
	Lane Lane
	At   int64
	Job  string // the beginning
}

// Next waits for what comes next, for the given time at most, and returns up to a hundred entries of each stream; none
// and no error if nothing came.
func (f *Follower) Next(ctx context.Context, patience time.Duration) (all []Telling, err error) {
	found, err := f.waits.XRead(ctx, &redis.XReadArgs{
		Streams: append(append([]string{}, f.streams...), f.last...), Count: 100, Block: patience,
	}).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	for _, stream := range found {
		for i, name := range f.streams {
			if name == stream.Stream && len(stream.Messages) > 0 {
				f.last[i] = stream.Messages[len(stream.Messages)-1].ID
			}
		}
		for _, m := range stream.Messages {
			all = append(all, readTelling(m))
		}
	}
	return all, err
}

// readTelling reads one message of any of these streams: by its fields one sees which.
func readTelling(m redis.XMessage) (t Telling) {
	field := fieldsOf(m)
	if t.Events = field("events"); t.Events != "" {
		return t
	}
	if field("reason") != "" {
		record := recordOf(m)
		t.Drop = &record
		return t
	}
	at := number(field("at"))
	t.Total = number(field("offered"))
	for i := 0; ; i += 2 {
		text, there := m.Values[fmt.Sprint(i)].(string)
		if !there {
			return t
		}
		if lane, job, err := ParseLater(text); err == nil {
			t.Offers = append(t.Offers, OfferView{lane, at, job})
		}
	}
}
