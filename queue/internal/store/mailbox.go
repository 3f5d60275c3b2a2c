package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Each worker has a list of messages, its mailbox. Commits append to it, with the instant at which Redis did so: that tells
// the worker how old a message is, and the leader since when a worker has taken none. The worker waits for one
// message, and then takes all that are there.
//
// A message is a hint, like a notice. The claims that it tells of stand in Redis before; a worker whose messages are lost
// finds its claims by comparing ([Store.Claimed]).

// Message waits for a message in the worker's mailbox, at most for the given time, and takes it out; "" if none
// came. Redis's clock had reached the returned instant when the message was written; 0 if the message says none.
// It blocks a connection of the waiting client. After an error a message may have been taken out and lost: the caller
// compares its claims.
func (s *Store) Message(ctx context.Context, worker string, patience time.Duration) (message string, at int64, err error) {
	popped, err := s.dedicated.BLPop(ctx, patience, s.key.Mailbox(worker)).Result()
	if errors.Is(err, redis.Nil) {
		return "", 0, nil
	}
	if errors.Is(err, redis.ErrPoolTimeout) {
		return "", 0, fmt.Errorf("%w: all connections of the client wait; want a PoolSize above twice the number of queues", err)
	}
	if err != nil {
		return "", 0, asBroken(err, s.key.Mailbox(worker), "list")
	}
	message, at = readMessage(popped[1])
	return message, at, nil
}

// MoreMessages takes what else is in the worker's mailbox by now, n messages at most, in one round trip. After an error
// they may be lost, as with Message.
func (s *Store) MoreMessages(ctx context.Context, worker string, n int) (messages []string, err error) {
	popped, err := s.client.LPopCount(ctx, s.key.Mailbox(worker), n).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	for _, text := range popped {
		message, _ := readMessage(text)
		messages = append(messages, message)
	}
	return messages, err
}

// readMessage separates a message from the instant before it. A message without one, such as [MessageLead], is returned
// whole, with 0.
func readMessage(text string) (message string, at int64) {
	when, message, _ := strings.Cut(text, " ")
	at, err := strconv.ParseInt(when, 10, 64)
	if err != nil {
		return text, 0
	}
	return message, at
}

// Nudge puts a message into a worker's own mailbox that only wakes it, in one round trip. The message has an instant,
// as those of commits have: the leader looks at how old the first message of a mailbox is. If the worker has ended
// nobody takes the message: so the mailbox expires after a day. A mailbox that is emptied is deleted, and its time with
// it.
func (s *Store) Nudge(ctx context.Context, worker string, at int64) error {
	pipe := s.client.TxPipeline()
	pipe.RPush(ctx, s.key.Mailbox(worker), strconv.FormatInt(at, 10)+" !")
	pipe.PExpire(ctx, s.key.Mailbox(worker), 24*time.Hour)
	_, err := pipe.Exec(ctx)
	return err
}
