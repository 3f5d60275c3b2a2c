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

// Letters to the leader are entries of a stream. All who write them append; the leader reads on from the last letter
// whose effects were committed, and trims what lies before that. Letters that belong together are fields of one
// entry, so that they are read together.

// mailEach is how many letters are read at a time, at most: what they ask for is done in one commit.
const mailEach = 200

// ReadMail returns the letters after the last one, and the ID of the newest. It waits for
// one if there is none; a patience below zero does not wait. First jobs of lanes that were
// offered together come in the order of the offer.
func (s *Store) ReadMail(ctx context.Context, after string, patience time.Duration) (string, []Letter, error) {
	streams, err := s.waits.XRead(ctx, &redis.XReadArgs{Streams: []string{s.key.Mail(), after}, Count: mailEach, Block: patience}).Result()
	if errors.Is(err, redis.Nil) {
		return after, nil, nil
	}
	if err != nil {
		return after, nil, asBroken(err, s.key.Mail(), "stream")
	}
	var letters []Letter
	for _, stream := range streams {
		for _, message := range stream.Messages {
			after = message.ID
			together := len(letters)
			for subject, text := range message.Values {
				if strings.HasPrefix(subject, "!") {
					subject, _, _ = strings.Cut(subject, " ")
				}
				value, _ := text.(string)
				letters = append(letters, Letter{subject, value})
			}
			// A job begins with its stamp; the client has put them into a map.
			slices.SortFunc(letters[together:], func(a, b Letter) int { return strings.Compare(a.Text, b.Text) })
		}
	}
	return after, letters, nil
}

// Write writes letters to the leader.
func (s *Store) Write(ctx context.Context, letters ...Letter) error {
	values := make([]any, 0, 2*len(letters))
	for i, letter := range letters {
		values = append(values, letter.Subject+" "+strconv.Itoa(i), letter.Text)
	}
	return asBroken(s.client.XAdd(ctx, &redis.XAddArgs{Stream: s.key.Mail(), Values: values}).Err(), s.key.Mail(), "stream")
}

// TrimMail deletes the letters whose effects were committed.
func (s *Store) TrimMail(ctx context.Context, through string) error {
	return s.client.XTrimMinID(ctx, s.key.Mail(), through).Err()
}
