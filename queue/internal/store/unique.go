package store

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// asynq.Unique lets a task be enqueued once while a lock lives. The task ends when the inbox has filed its job, and
// asynq lifts the lock then. So that the promise holds for as long as the job lives, the inbox puts the job in the
// task's place as the holder of the lock, and whoever ends the job lifts it.

// lockHolder is what a lock of asynq.Unique holds while the job of its task lives. asynq
// lifts a lock when its task has ended, if it still holds the task's ID.
func lockHolder(task string) string { return "waterclock:" + task }

// KeepLock keeps the lock of asynq.Unique, if the task has one, beyond the end of the task:
// until [Store.LiftLock], or for the rest of its time. It returns the lock's key, "" for none.
func (s *Store) KeepLock(ctx context.Context, task string) (lock string, err error) {
	lock, err = s.client.HGet(ctx, "asynq:{"+s.Queue+"}:t:"+task, "unique_key").Result()
	if errors.Is(err, redis.Nil) || err != nil || lock == "" {
		return "", ignoreNil(err)
	}
	c := s.newChange()
	c.when(task, "GET", []string{lock})
	c.do("SET", lock, lockHolder(task), "KEEPTTL")
	c.when(lockHolder(task), "GET", []string{lock})
	done, err := c.apply(ctx)
	if err != nil || !done[1] { // its time is over
		return "", err
	}
	return lock, nil
}

// LiftLock lifts a lock that [Store.KeepLock] has kept for the task, if it is still its.
func (s *Store) LiftLock(ctx context.Context, lock, task string) error {
	c := s.newChange()
	c.when(lockHolder(task), "GET", []string{lock})
	c.do("DEL", lock)
	_, err := c.apply(ctx)
	return err
}

func ignoreNil(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}
