package examine

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// typeOf are the types of keys, by what stands before the first colon behind the prefix.
var typeOf = map[string]string{
	"meta": "hash", "policies": "hash", "tenants": "zset", "later": "zset", "workers": "zset", "notices": "stream",
	"paused": "zset", "backlogs": "zset", "notes": "hash", "history": "stream", "cancelled": "set", "drops": "stream", "refused": "stream",
	"dead": "stream", "done": "stream", "told": "hash", "events": "stream", "offers": "stream",
	"lane": "list", "due": "zset", "fold": "hash", "digest": "hash", "body": "string", "state": "string", "tenant": "hash", "worker": "hash",
	"running": "hash", "mailbox": "list", "id": "string", "past": "hash", "batch": "string", "chart": "hash",
}

// aside is what the name of a key that was set aside begins with, behind the prefix.
const aside = "broken:"

// types looks for keys of another type.
func (l *look) types(ctx context.Context) error {
	replies, err := read(ctx, l, l.names.all, func(pipe redis.Pipeliner, key string) *redis.StatusCmd { return pipe.Type(ctx, key) })
	if err != nil {
		return err
	}
	for i, key := range l.names.all {
		class, owner, _ := strings.Cut(strings.TrimPrefix(key, l.prefix), ":")
		want, is := typeOf[class], replies[i].Val()
		if want == "" || is == want || is == "none" {
			continue
		}
		problem := "the jobs, limits or counters of its owner cannot be read; others are not affected"
		if class == "past" {
			problem = "the history of its job is not known; nothing else is affected"
		}
		if owner == "" || class == "running" || class == "mailbox" || class == "worker" {
			problem = "it belongs to the whole queue, which stands still"
		}
		l.add(damage{
			Finding: Finding{
				Kind: WrongType, Key: key, Seen: "a " + is, Problem: fmt.Sprintf("%s; want a %s", problem, want),
				Repair: "the key is renamed to " + l.prefix + aside + strings.TrimPrefix(key, l.prefix) + ", and what can be rebuilt is",
			},
			still: func(ctx context.Context) (bool, error) {
				now, err := l.Client.Type(ctx, key).Result()
				return now != want && now != "none", err
			},
			mend: func(ctx context.Context) error { return l.setAside(ctx, key, want) },
		})
	}
	return nil
}

// setAside renames a key, unless it has the right type by now: nothing is deleted.
func (l *look) setAside(ctx context.Context, key, want string) error {
	return l.Client.Watch(ctx, func(tx *redis.Tx) error {
		is, err := tx.Type(ctx, key).Result()
		if err != nil || is == want || is == "none" {
			return err
		}
		_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			return pipe.Rename(ctx, key, l.prefix+aside+strings.TrimPrefix(key, l.prefix)).Err()
		})
		return err
	}, key)
}
