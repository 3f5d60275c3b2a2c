package store

import (
	"context"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// Each lane with jobs is a member of its tenant's index, and each tenant with lanes of the index of tenants. The score
// is a bound: no job starts before. A bound may be too early, which costs a look, and must never be too late: the
// leader finds what it does not remember only when its bound comes. So bounds are lowered by whoever makes something
// due earlier, and raised by the leader alone, which has computed the slot.

// A Bounded is a member of an index, or of later: it is not due before an instant.
type Bounded struct {
	Name string // as it stands in Redis: of an index the escaped tenant or user
	At   int64
}

// bounded reads members of a sorted set.
func bounded(all []redis.Z) []Bounded {
	front := make([]Bounded, len(all))
	for i, z := range all {
		front[i].Name, _ = z.Member.(string)
		front[i].At = int64(z.Score)
	}
	return front
}

// A Span is the members of an index whose bounds are not before an instant, in their order, N at most. Of those with that bound
// it has the ones behind a member, which may have left the index; all if that is "".
type Span struct {
	From  int64
	After string
	N     int
}

// ScanTenants returns some of the tenants with waiting jobs, and the cursor of the next
// page: 0 after the last one. The first page has the cursor 0, too. It takes one round trip. A tenant may come twice.
func (s *Store) ScanTenants(ctx context.Context, cursor uint64) (names []string, next uint64, err error) {
	found, next, err := s.client.ZScan(ctx, s.key.Tenants(), cursor, "", 100).Result()
	for i := 0; i < len(found); i += 2 {
		names = append(names, Unescape(found[i]))
	}
	return names, next, err
}

// LowerBounds lowers the bounds of a tenant's lanes that lie after an instant to it. It takes many short steps of two
// round trips, and each tells the leader: that may be another one than when the bounds were read. A step that is done
// twice, or late, makes bounds too early at worst. After an error some bounds may be lowered and others not.
func (s *Store) LowerBounds(ctx context.Context, tenant string, to int64) error {
	const step = 500
	for priority := range suffixes {
		for more := true; more; {
			key := s.key.Due(tenant, priority)
			found, err := s.client.ZRangeByScore(ctx, key, &redis.ZRangeBy{
				Min: "(" + strconv.FormatInt(to, 10), Max: "+inf", Count: step}).Result()
			if err != nil {
				if wrongType(err) {
					break
				}
				return err
			}
			if more = len(found) == step; len(found) == 0 {
				break
			}
			words := []any{"XX", "LT"}
			for _, user := range found {
				words = append(words, to, user)
			}
			c := s.newChange()
			c.tell(NoticeLowered, Escape(tenant))
			c.always()
			c.do("ZADD", key, words...)
			if _, err := c.apply(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// SetSwept notes under which policies and zones all bounds are right: a new leader need not lower them again
// ([Meta.Swept]). It takes one round trip.
func (s *Store) SetSwept(ctx context.Context, under string) error {
	return s.client.HSet(ctx, s.key.Meta(), "swept", under).Err()
}
