package store

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// A tenant exists by its counters and by what waits. Nobody creates or deletes it. The counters of one that has had
// nothing waiting for a day are forgotten.

// A TenantView is the state of a tenant.
type TenantView struct {
	Tenant string
	Counts
	Next int64 // no job of it starts before, as far as Redis was told; 0 if none waits
}

// Tenants returns the state of tenants, in one round trip. Of a tenant that is not known all numbers are 0.
func (s *Store) Tenants(ctx context.Context, tenants []string) ([]TenantView, error) {
	pipe := s.client.Pipeline()
	fields := add(pipe, tenants, func(pipe redis.Pipeliner, tenant string) *redis.MapStringStringCmd {
		return pipe.HGetAll(ctx, s.key.Tenant(tenant))
	})
	next := add(pipe, tenants, func(pipe redis.Pipeliner, tenant string) *redis.FloatCmd {
		return pipe.ZScore(ctx, s.key.Tenants(), Escape(tenant))
	})
	err := ask(ctx, pipe)
	all := make([]TenantView, len(tenants))
	for i, tenant := range tenants {
		all[i] = TenantView{tenant, readCounts(fields[i].Val()), int64(next[i].Val())}
	}
	return all, err
}

// DuePage returns the names of n tenants with waiting jobs, from a place on, in the order in which they
// are due, in one round trip.
func (s *Store) DuePage(ctx context.Context, from, n int) ([]string, error) {
	names, err := s.client.ZRange(ctx, s.key.Tenants(), int64(from), int64(from+n-1)).Result()
	for i, name := range names {
		names[i] = Unescape(name)
	}
	return names, err
}

// A UserView is a user with waiting jobs.
type UserView struct {
	User    string
	Waiting int
	Next    int64 // no job of it starts before, as far as Redis was told
}

// Users returns users of a tenant with waiting jobs, in the order in which they are due,
// from a place on, n at most. A user with lanes of several priorities is one of them, and its jobs are added up. It
// reads all users before the place, too: four round trips, and the deeper the page, the longer the replies.
func (s *Store) Users(ctx context.Context, tenant string, from, n int) ([]UserView, error) {
	next, labelled := make(map[string]int64), make(map[string][]Lane)
	for priority := range suffixes {
		page, err := s.client.ZRangeWithScores(ctx, s.key.Due(tenant, priority), 0, int64(from+n-1)).Result()
		if err != nil && !wrongType(err) {
			return nil, err
		}
		for _, b := range bounded(page) {
			lane := namedLane(tenant, priority, b.Name)
			if at, known := next[lane.User]; !known || b.At < at {
				next[lane.User] = b.At
			}
			if lane.Label != "" {
				labelled[lane.User] = append(labelled[lane.User], lane)
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
	var of []int // the user of each
	for i, u := range users {
		for priority := range suffixes {
			lanes, of = append(lanes, Lane{Tenant: tenant, User: u.User, Priority: priority}), append(of, i)
		}
		for _, lane := range labelled[u.User] {
			lanes, of = append(lanes, lane), append(of, i)
		}
	}
	lengths, err := s.Lengths(ctx, lanes)
	for i, n := range lengths {
		users[of[i]].Waiting += int(n)
	}
	return users, err
}

// tenantMemory is how long the counters of a tenant with nothing to do are kept.
const tenantMemory = 24 * time.Hour

// forgetStep is how many tenants one script forgets. Each of them has four keys, and nothing else runs in Redis
// meanwhile.
const forgetStep = 50

// ForgetTenants takes those of the tenants out of the index that have no lanes, and lets their counters expire. One
// that has got a job since the caller looked has a lane, and stays: the condition and the removal are one step. It
// takes a round trip for each fifty of them.
func (s *Store) ForgetTenants(ctx context.Context, names []string) error {
	for some := range slices.Chunk(names, forgetStep) {
		c := s.newChange()
		for _, name := range some {
			c.when(0, "EXISTS", []string{s.key.Due(name, 0), s.key.Due(name, 1), s.key.Due(name, 2)})
			c.do("ZREM", s.key.Tenants(), Escape(name))
			c.do("PEXPIRE", s.key.Tenant(name), tenantMemory.Milliseconds())
		}
		if _, err := c.apply(ctx); err != nil {
			return err
		}
	}
	return nil
}
