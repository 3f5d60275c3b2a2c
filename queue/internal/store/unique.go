package store

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// asynq.Unique lets a task be enqueued once while a lock lives. The task ends when the inbox has filed its job, and
// asynq lifts the lock then. So that the promise holds until the job is done, the inbox puts the job in the
// task's place as the holder of the lock, and the worker lifts the lock when the job is done. The lock of a job that is
// dead or dropped lives for the rest of its time, as in asynq.
//
// The keys of asynq have the queue's name in braces, so they share the hash slot of the queue's own keys, or of those that its
// partitions have in common, and a change may touch both.

// lockHolder is what a lock of asynq.Unique holds while the job of its task lives. asynq
// lifts a lock when its task has ended, if the lock still holds the task's ID: this text is another one.
func lockHolder(task string) string { return "waterclock:" + task }

// KeepLock keeps the lock of asynq.Unique, if the task has one, beyond the end of the task: until [Store.LiftLock], or
// for the rest of its time. It returns the lock's key, "" for none. It takes two round trips, and may be called again
// for the same task: the second step finds that the lock is kept.
func (s *Store) KeepLock(ctx context.Context, task string) (lock string, err error) {
	lock, err = s.client.HGet(ctx, s.asynqTask(task), "unique_key").Result()
	if errors.Is(err, redis.Nil) || err != nil || lock == "" {
		return "", ignoreNil(err)
	}
	c := s.whole().newChange()
	c.when(task, "GET", []string{lock})
	c.do("SET", lock, lockHolder(task), "KEEPTTL")
	c.when(lockHolder(task), "GET", []string{lock})
	done, err := c.apply(ctx)
	if err != nil || !done[1] { // its time is over
		return "", err
	}
	return lock, nil
}

// LiftLock lifts a lock that [Store.KeepLock] has kept for the task, in one round trip. A lock whose time was over, and
// which another task has by now, stays.
func (s *Store) LiftLock(ctx context.Context, lock, task string) error {
	c := s.whole().newChange()
	c.when(lockHolder(task), "GET", []string{lock})
	c.do("DEL", lock)
	_, err := c.apply(ctx)
	return err
}

// asynqTask returns the key of a task of the asynq queue.
func (s *Store) asynqTask(id string) string { return "asynq:{" + s.Queue + "}:t:" + id }

// WriteResult writes the result of a task that asynq retains, where asynq's own servers write it, in one round trip. For
// a task that is not there it does nothing: the key would stay for ever.
func (s *Store) WriteResult(ctx context.Context, task string, result []byte) error {
	key := s.asynqTask(task)
	c := s.whole().newChange()
	c.when(1, "EXISTS", []string{key})
	c.must("HSET", key, "result", result)
	_, err := c.apply(ctx)
	return err
}

// ignoreNil returns no error where a key or a field is not there.
func ignoreNil(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}
