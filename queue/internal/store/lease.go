package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A concurrency limit that counts jobs of several partitions lends each of them so many places. At wc:{q}: is how many are lent:
//
//	places              a hash: scope → places that are leased, to all partitions together, and when the sum was begun
//	leased:<partition>  a hash: scope → places that the partition has; the number of its leader's token and of its last telling, and
//	                    to which sum it was added
//	waiting:<scope>     a hash: partition → what it has and wants, its weight, since when it waits, and until when that is believed
//
// Leases do not end by themselves: jobs run on when their leader dies. Whoever leads next tells what runs, and that replaces all that
// was told before.

// A LeaseAsk says what a partition keeps of the places of a limit, and how many more it wants.
type LeaseAsk struct {
	Scope        string
	Most         int // how many jobs of all partitions the limit lets run
	Keeps, Wants int
	Weight       int
}

// A Lease is what a partition has of the places of a limit. It should use no more than Uses of them, since others have waited longer.
// Ring are the partitions that may have places now.
type Lease struct {
	Places, Uses int
	Ring         []int
}

// A LeaseTelling is a call of [Store.Lease]. Its number is larger than those of the tellings before under a token. All says that it replaces
// what was told before, of all limits.
type LeaseTelling struct {
	Token    string
	Number   int64
	All      bool
	Patience time.Duration // for which the partition is believed to wait for places
	Asks     []LeaseAsk
}

// ErrUntold is returned for a telling that came behind a later one, or after another one leads.
var ErrUntold = errors.New("queue: places were told of later")

// Lease tells how many places of limits that count jobs of all partitions this one keeps, and asks for more, in one round trip. The
// leases are in the order of the asks. After an error it is unknown what was leased, and the next telling says anew what is kept.
func (s *Store) Lease(ctx context.Context, of LeaseTelling) ([]Lease, error) {
	epoch, _, _ := strings.Cut(of.Token, ":")
	key := s.whole().key
	all := 0
	if of.All {
		all = 1
	}
	keys := []string{key.Leases(), key.LeasesOf(s.Number)}
	args := []any{s.Number, epoch, of.Number, all, of.Patience.Microseconds()}
	for _, ask := range of.Asks {
		keys = append(keys, key.Waiting(ask.Scope))
		args = append(args, ask.Scope, ask.Most, ask.Keeps, ask.Wants, max(1, ask.Weight))
	}
	reply := readFields(s.runOnce(ctx, "lease", keys, args...), 2)
	switch {
	case reply.err != nil:
		return nil, reply.err
	case reply.int(1) != 0:
		return nil, ErrUntold
	case len(reply.values) != 2+len(of.Asks):
		return nil, fmt.Errorf("a reply of %d fields, want %d", len(reply.values), 2+len(of.Asks))
	}
	leases := make([]Lease, len(of.Asks))
	for i := range leases {
		one, _ := reply.values[2+i].([]any)
		if len(one) != 3 {
			return nil, fmt.Errorf("a lease of %d fields, want 3", len(one))
		}
		has, _ := one[0].(int64)
		uses, _ := one[1].(int64)
		leases[i] = Lease{Places: int(has), Uses: int(uses)}
		rings, _ := one[2].([]any)
		for _, ring := range rings {
			if n, is := ring.(int64); is && n >= 0 && n < int64(s.Of) {
				leases[i].Ring = append(leases[i].Ring, int(n))
			}
		}
	}
	return leases, nil
}

// Ring tells the leader of another partition that there may be places for it.
func (s *Store) Ring(ctx context.Context, partition int) error {
	other := *s
	other.key = NewKeys(s.Queue + "/" + strconv.Itoa(partition))
	return other.Write(ctx, Notice{Subject: NoticeLeases})
}

// LeasedPlaces returns how many places all partitions have together, by the scopes of their asks.
func (s *Store) LeasedPlaces(ctx context.Context) (map[string]int, error) {
	key := s.whole().key.Leases()
	found, err := s.client.HGetAll(ctx, key).Result()
	if err != nil {
		return nil, asBroken(err, key, "hash")
	}
	all := make(map[string]int, len(found))
	for scope, n := range found {
		if !strings.HasPrefix(scope, "%") {
			all[scope] = int(number(n))
		}
	}
	return all, nil
}
