package store

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Notices to the leader are entries of a stream. All who write them append; the leader reads on from the last notice
// whose effects were committed, and trims what lies before that. Notices that belong together are fields of one
// entry, so that they are read together.

// noticesEach is how many notices are read at a time, at most: what they ask for is done in one commit.
const noticesEach = 200

// ReadNotices returns the notices after the one with the given ID, and the ID of the newest that it returns, which is
// what to read after next. It waits for one if there is none; a patience below zero does not wait. First jobs of
// lanes that were offered together come in the order of the offer. Reading takes nothing out of the stream.
func (s *Store) ReadNotices(ctx context.Context, after string, patience time.Duration) (string, []Notice, error) {
	streams, err := s.dedicated.XRead(ctx, &redis.XReadArgs{Streams: []string{s.key.Notices(), after}, Count: noticesEach, Block: patience}).Result()
	if errors.Is(err, redis.Nil) {
		return after, nil, nil
	}
	if err != nil {
		return after, nil, asBroken(err, s.key.Notices(), "stream")
	}
	var notices []Notice
	for _, stream := range streams {
		for _, message := range stream.Messages {
			after = message.ID
			together := len(notices)
			for subject, text := range message.Values {
				if strings.HasPrefix(subject, "!") {
					subject, _, _ = strings.Cut(subject, " ")
				}
				value, _ := text.(string)
				notices = append(notices, Notice{subject, value})
			}
			// A job begins with its stamp; the client has put them into a map.
			slices.SortFunc(notices[together:], func(a, b Notice) int { return strings.Compare(a.Text, b.Text) })
		}
	}
	return after, notices, nil
}

// HasNotice reports whether the stream has the notice with an ID.
func (s *Store) HasNotice(ctx context.Context, id string) (bool, error) {
	found, err := s.client.XRange(ctx, s.key.Notices(), id, id).Result()
	return len(found) > 0, asBroken(err, s.key.Notices(), "stream")
}

// Write writes notices to the leader, as one entry of the stream, in one round trip. After an error they may be there,
// and the caller writes them again: a return that is read twice has its effects once, since its claim is gone then.
func (s *Store) Write(ctx context.Context, notices ...Notice) error {
	values := make([]any, 0, 2*len(notices))
	for i, notice := range notices {
		values = append(values, notice.Subject+" "+strconv.Itoa(i), notice.Text)
	}
	return asBroken(s.client.XAdd(ctx, &redis.XAddArgs{Stream: s.key.Notices(), Values: values}).Err(), s.key.Notices(), "stream")
}

// TrimNotices deletes the notices before the one with the given ID, whose effects were committed.
func (s *Store) TrimNotices(ctx context.Context, through string) error {
	return s.client.XTrimMinID(ctx, s.key.Notices(), through).Err()
}
