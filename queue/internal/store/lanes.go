package store

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// A lane is a list of entries, the oldest first. An entry is a job, or a stub: "=" and the collapse key under which the
// job stands in the hash of its user. The stub keeps the place in line while the job is replaced.

// A LaneScan is a place in a walk through all lanes of a tenant. It begins with the tenant's name alone.
type LaneScan struct {
	Tenant   string
	Done     bool   // nothing is left
	priority int    // the index that is walked through
	cursor   uint64 // in that index, as Redis counts
}

// ScanLanes returns some of the lanes, and where it goes on, in one round trip. A lane may come twice. One that is in
// its index during the whole walk comes at least once.
func (s *Store) ScanLanes(ctx context.Context, at LaneScan) (lanes []Lane, next LaneScan, err error) {
	found, cursor, err := s.client.ZScan(ctx, s.key.Due(at.Tenant, at.priority), at.cursor, "", scanStep).Result()
	if err != nil && !wrongType(err) {
		return nil, at, err
	}
	for i := 0; i < len(found); i += 2 {
		lanes = append(lanes, namedLane(at.Tenant, at.priority, found[i]))
	}
	next = at
	if next.cursor = cursor; cursor == 0 {
		next.priority++
		next.Done = next.priority == len(suffixes)
	}
	return lanes, next, nil
}

// namedLane returns the lane that a member of an index names.
func namedLane(tenant string, priority int, member string) Lane {
	user, label := envelope.ParseMember(member)
	return Lane{Tenant: tenant, User: user, Priority: priority, Label: label}
}

// DueLanes returns the lanes of tenants that are due first, at most n of each tenant and priority, in three round trips. Whole
// reports whether they are all lanes of these tenants.
func (s *Store) DueLanes(ctx context.Context, tenants []string, n int) (lanes []Lane, whole bool, err error) {
	whole = true
	for priority := range suffixes {
		found, err := each(ctx, s, tenants, func(pipe redis.Pipeliner, tenant string) *redis.StringSliceCmd {
			return pipe.ZRange(ctx, s.key.Due(tenant, priority), 0, int64(n-1))
		})
		if err != nil {
			return nil, false, err
		}
		for i, tenant := range tenants {
			for _, member := range found[i].Val() {
				lanes = append(lanes, namedLane(tenant, priority, member))
			}
			whole = whole && len(found[i].Val()) < n
		}
	}
	return lanes, whole, nil
}

// LabelledLanes returns the lanes of a user that have a label. It goes through all lanes of the tenant, some hundreds at a
// time: for people who ask about one user.
func (s *Store) LabelledLanes(ctx context.Context, tenant, user string) (lanes []Lane, err error) {
	pattern := globEscape.Replace(Escape(user)) + "|*"
	for priority := range suffixes {
		for cursor := uint64(0); ; {
			found, next, err := s.client.ZScan(ctx, s.key.Due(tenant, priority), cursor, pattern, scanStep).Result()
			if err != nil && !wrongType(err) {
				return nil, err
			}
			for i := 0; i < len(found); i += 2 {
				lanes = append(lanes, namedLane(tenant, priority, found[i]))
			}
			if cursor = next; cursor == 0 {
				break
			}
		}
	}
	slices.SortFunc(lanes, func(a, b Lane) int { return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Label, b.Label)) })
	return slices.Compact(lanes), nil // a scan may bring a member twice
}

// globEscape writes a text as a pattern that it alone matches.
var globEscape = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// Lengths returns how many jobs wait in each lane.
func (s *Store) Lengths(ctx context.Context, lanes []Lane) ([]int64, error) {
	found, err := each(ctx, s, lanes, func(pipe redis.Pipeliner, lane Lane) *redis.IntCmd { return pipe.LLen(ctx, s.key.Lane(lane)) })
	return values(found), err
}

// A Page is a part of a lane: N entries from the place From on, which counts from 0.
type Page struct {
	Lane
	From, N int
}

// FirstPages returns the pages with the first n entries of lanes.
func FirstPages(lanes []Lane, n int) []Page {
	pages := make([]Page, len(lanes))
	for i, lane := range lanes {
		pages[i] = Page{Lane: lane, N: n}
	}
	return pages
}

// An Entry is what stands in a lane: a job, or a stub for the job under a collapse key.
type Entry struct {
	Lane
	Place int // from 1
	Text  string
	Job   string // "" if there is none under the collapse key
}

// Folded reports whether the entry is a stub.
func (e Entry) Folded() bool { return strings.HasPrefix(e.Text, "=") }

// Heads returns the entries of parts of lanes as texts, jobs and stubs, in one round trip. A part that lies beyond the
// end of its lane is shorter, or empty.
func (s *Store) Heads(ctx context.Context, pages []Page) ([][]string, error) {
	found, err := each(ctx, s, pages, func(pipe redis.Pipeliner, p Page) *redis.StringSliceCmd {
		return pipe.LRange(ctx, s.key.Lane(p.Lane), int64(p.From), int64(p.From+p.N-1))
	})
	return values(found), err
}

// Entries returns parts of lanes, one after the other, with the jobs of stubs. If there are stubs it takes two round
// trips: a job under a collapse key may have been replaced, or have left, between the two.
func (s *Store) Entries(ctx context.Context, pages []Page) ([]Entry, error) {
	found, err := s.Heads(ctx, pages)
	if err != nil {
		return nil, err
	}
	var entries []Entry
	var folded []Folded
	for i, p := range pages {
		for k, text := range found[i] {
			e := Entry{Lane: p.Lane, Place: p.From + k + 1, Text: text, Job: text}
			if e.Folded() {
				folded = append(folded, Folded{p.Tenant, p.User, text[1:]})
			}
			entries = append(entries, e)
		}
	}
	jobs, err := s.FoldedJobs(ctx, folded)
	for i := range entries {
		if len(jobs) > 0 && entries[i].Folded() {
			entries[i].Job, jobs = jobs[0], jobs[1:]
		}
	}
	return entries, err
}

// Payloads returns payloads that are kept apart, in one round trip; "" for one that is gone. A payload that is kept
// apart is never empty.
func (s *Store) Payloads(ctx context.Context, spilled []string) ([]string, error) {
	if len(spilled) == 0 {
		return nil, nil
	}
	keys := make([]string, len(spilled))
	for i, name := range spilled {
		keys[i] = s.key.Body(name)
	}
	found, err := s.client.MGet(ctx, keys...).Result()
	return textsOf(found), err
}

// A Folded names a job by its collapse key, or a digest by its name: Key is what a stub has behind "=".
type Folded struct{ Tenant, User, Key string }

// digest returns the key of the members of the digest that is named, while it is open; false for a job under a collapse key.
func (s *Store) digest(f Folded) (key string, name envelope.DigestName, is bool) {
	name, is = envelope.ParseDigest(f.Key)
	return s.key.Digest(f.Tenant, f.User, name.Place), name, is
}

// FoldedJobs returns jobs under their collapse keys, and digests, in one round trip; "" for one that is not there. Its commands are no
// transaction. An offer may close a digest between them, which then goes from the key of its members to the jobs under keys: so these are
// read last.
func (s *Store) FoldedJobs(ctx context.Context, folded []Folded) ([]string, error) {
	pipe := s.client.Pipeline()
	if len(folded) == 0 {
		return nil, nil
	}
	open := make(map[int]*redis.MapStringStringCmd)
	for i, f := range folded {
		if key, _, is := s.digest(f); is {
			open[i] = pipe.HGetAll(ctx, key)
		}
	}
	found := add(pipe, folded, func(pipe redis.Pipeliner, f Folded) *redis.StringCmd {
		return pipe.HGet(ctx, s.key.Fold(f.Tenant, f.User), f.Key)
	})
	err := ask(ctx, pipe)
	jobs := values(found)
	for i, cmd := range open {
		_, name, _ := s.digest(folded[i])
		if jobs[i] == "" {
			jobs[i] = openDigest(name.Stamp, cmd.Val())
		}
	}
	return jobs, err
}

// openDigest returns the envelope of an open digest of that stamp from the fields of its hash; "" if that is another one.
func openDigest(stamp string, fields map[string]string) string {
	record := fields[""]
	if !strings.HasPrefix(record, stamp) {
		return ""
	}
	var members []string
	for field, member := range fields {
		if field != "" {
			members = append(members, member)
		}
	}
	slices.Sort(members) // by their stamps
	return envelope.JoinDigest(record, members)
}

// Waiting returns the backlogs of tenants, in one round trip.
func (s *Store) Waiting(ctx context.Context, tenants []string) ([]int64, error) {
	found, err := each(ctx, s, tenants, func(pipe redis.Pipeliner, tenant string) *redis.SliceCmd {
		return pipe.HMGet(ctx, s.key.Tenant(tenant), "in", "back", "started", "dropped")
	})
	waiting := make([]int64, len(tenants))
	for i, counters := range found {
		waiting[i] = backlog(textsOf(counters.Val()))
	}
	return waiting, err
}
