package store

import (
	"context"
	"strings"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// Jobs that wait for their time (an offer for later, a retry after its backoff) are members of one sorted set, named by
// their lane and the job. The leader puts them into their lanes when their time has come.

// Ripe returns what waits for its time and is due at an instant, in order, n at most, and when the next is due after
// those: 0 if nothing waits. That may be before the instant, if more than n are due. It takes one round trip, and takes
// nothing out: the commit that puts a job into its lane does ([Commit.Mature]).
func (s *Store) Ripe(ctx context.Context, at int64, n int) (ripe []Bounded, next int64, err error) {
	all, err := s.client.ZRangeWithScores(ctx, s.key.Later(), 0, int64(n)).Result()
	if err != nil {
		return nil, 0, asBroken(err, s.key.Later(), "zset")
	}
	for i, b := range bounded(all) {
		if b.At > at || i == n {
			return ripe, b.At, nil
		}
		ripe = append(ripe, b)
	}
	return ripe, 0, nil
}

// ParseLater reads a member of what waits for its time: its lane and the job.
func ParseLater(member string) (Lane, string, error) {
	name, job, _ := strings.Cut(member, " ")
	lane, err := envelope.ParseLane(name)
	return lane, job, err
}

// A LaterView is a job that waits for its time.
type LaterView struct {
	Lane Lane   // into which it goes
	At   int64  // its time
	Job  string // the envelope
}

// LaterPage returns jobs that wait for their time in the order in which it comes, from a
// place on, n at most, in one round trip, and in two if there are digests. Members that cannot be read are left out.
func (s *Store) LaterPage(ctx context.Context, from, n int) ([]LaterView, error) {
	page, err := s.client.ZRangeWithScores(ctx, s.key.Later(), int64(from), int64(from+n-1)).Result()
	var all []LaterView
	var stubs []Folded
	var of []int
	for _, b := range bounded(page) {
		lane, job, bad := ParseLater(b.Name)
		if bad != nil {
			continue
		}
		if strings.HasPrefix(job, "=") {
			stubs, of = append(stubs, Folded{lane.Tenant, lane.User, job[1:]}), append(of, len(all))
		}
		all = append(all, LaterView{lane, b.At, job})
	}
	if err != nil || len(stubs) == 0 {
		return all, err
	}
	digests, err := s.FoldedJobs(ctx, stubs)
	for i, digest := range digests {
		all[of[i]].Job = digest
	}
	return all, err
}
