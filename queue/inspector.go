package queue

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/forecast"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// An Inspector reads the state of a queue and steers it. It is safe for concurrent use. The
// duration of its calls does not depend on how many jobs wait, except that of [Inspector.Purge].
type Inspector struct {
	store      *store.Store // of what the partitions have in common, or of one of them
	forecasts  *forecast.Reader
	note       Note
	partitions *store.Partitions[*Inspector] // nil in an inspector of one of them
}

// NewInspector returns an inspector of the queue. The error wraps [ErrInvalidArgument], as
// that of [NewClient] does.
func NewInspector(rdb redis.UniversalClient, queue string) (*Inspector, error) {
	s, err := store.New(rdb, queue)
	if err != nil {
		return nil, invalidName{err}
	}
	of := func(s *store.Store) *Inspector { return &Inspector{store: s, forecasts: forecast.NewReader(rdb, s)} }
	i := of(s)
	i.partitions = store.NewPartitions(s, of)
	return i, nil
}

// wrapped is failed for an error that may be nil.
func (i *Inspector) wrapped(doing string, err error) error {
	if err == nil {
		return nil
	}
	return i.failed(doing, err)
}

// failed says what of an inspector has failed.
func (i *Inspector) failed(doing string, err error) error {
	return fmt.Errorf("%s queue %q: %w", doing, i.store.Name(), err)
}

// Counters count the jobs of a queue or of one tenant since the beginning.
type Counters struct {
	Offered int64 `json:"offered"` // by producers, without duplicates
	Started int64 `json:"started"` // claimed to be started: one for each attempt
	Done    int64 `json:"done"`    // ended well; for a queue only, 0 for a tenant
	Failed  int64 `json:"failed"`  // attempts that failed or whose worker was lost
	Dropped int64 `json:"dropped"` // never to run, with a reason in Drops
	Dead    int64 `json:"dead"`    // attempts exhausted, also if they were revived or deleted since
}

func countersOf(c store.Counts) Counters {
	return Counters{
		Offered: c.Offered, Started: c.Started, Done: c.Done, Failed: c.Failed, Dropped: c.Dropped, Dead: c.Dead,
	}
}

// Stats are the state of a queue at one moment.
type Stats struct {
	Waiting int64 `json:"waiting"` // in lanes
	Later   int64 `json:"later"`   // not before a time: scheduled, or backing off
	Running int64 `json:"running"` // claimed and not yet done
	Counters

	// DeadNow is how many dead jobs there are: those that were neither revived nor deleted, of the
	// last 100,000.
	DeadNow int64 `json:"dead_now"`

	// Duplicates counts the asynq tasks that the inbox has refused since a living job had
	// their ID; Drops has them with ReasonDuplicate.
	Duplicates int64 `json:"duplicates"`

	// Blocked is for how long each rule or concurrency limit, or "paused", has held its queue,
	// tenants and users back: from the last start, or from when a job was there, to the next start.
	// The growth in a second is how many of them it holds back at a time. However many jobs wait
	// behind the next one of a tenant, its leak holds back one tenant.
	Blocked map[string]time.Duration `json:"blocked_ns"`

	// Shadowed counts the starts that each shadow rule would have deferred or dropped.
	Shadowed map[string]int64 `json:"shadowed"`

	// Reasons counts the jobs that never run by reason, duplicates of the inbox among them.
	Reasons map[Reason]int64 `json:"-"`

	// RecentAttempts is how many attempts have ended lately: about the last twenty, or those of
	// about ten seconds. RecentFailed is how many of them have failed, RecentAt when the last of
	// these did, and RecentError with what. All are zero if no attempt has ever failed.
	RecentAttempts int64     `json:"-"`
	RecentFailed   int64     `json:"-"`
	RecentError    string    `json:"-"`
	RecentAt       time.Time `json:"-"`
}

// Stats returns the state of the queue.
func (i *Inspector) Stats(ctx context.Context) (Stats, error) {
	all, err := inEach(ctx, i, func(p *Inspector) (Stats, error) { return p.stats(ctx) })
	if err != nil {
		return Stats{}, err
	}
	for _, s := range all[1:] {
		all[0].add(s)
	}
	return all[0], nil
}

// add adds the state of another partition.
func (s *Stats) add(other Stats) {
	s.Waiting += other.Waiting
	s.Later += other.Later
	s.Running += other.Running
	s.DeadNow += other.DeadNow
	s.Duplicates += other.Duplicates
	s.Counters.add(other.Counters)
	addTo(s.Blocked, other.Blocked)
	addTo(s.Shadowed, other.Shadowed)
	addTo(s.Reasons, other.Reasons)
	s.RecentAttempts += other.RecentAttempts
	s.RecentFailed += other.RecentFailed
	if other.RecentAt.After(s.RecentAt) {
		s.RecentAt, s.RecentError = other.RecentAt, other.RecentError
	}
}

func (c *Counters) add(other Counters) {
	c.Offered += other.Offered
	c.Started += other.Started
	c.Done += other.Done
	c.Failed += other.Failed
	c.Dropped += other.Dropped
	c.Dead += other.Dead
}

// addTo adds the numbers of a map to those of another.
func addTo[K comparable, N ~int64](to, from map[K]N) {
	for key, n := range from {
		to[key] += n
	}
}

func (i *Inspector) stats(ctx context.Context) (Stats, error) {
	t, err := i.store.Totals(ctx)
	if err != nil {
		return Stats{}, i.failed("inspecting", err)
	}
	stats := Stats{
		Waiting: t.Waiting, Later: t.Later, Running: t.Running, DeadNow: t.DeadNow, Counters: countersOf(t.Counts), Duplicates: t.Duplicates,
		Blocked: make(map[string]time.Duration), Shadowed: t.Shadowed, Reasons: make(map[Reason]int64),
		RecentAttempts: t.Last.Done + t.Last.Failed, RecentFailed: t.Last.Failed, RecentError: t.Last.Error, RecentAt: envelope.Instant(t.Last.At),
	}
	for rule, us := range t.Blocked {
		stats.Blocked[rule] = time.Duration(us) * time.Microsecond
	}
	for reason, n := range t.Reasons {
		stats.Reasons[Reason(reason)] = n
	}
	return stats, nil
}

// TenantStats are the state of one tenant.
type TenantStats struct {
	Tenant  string    `json:"tenant"`
	Waiting int64     `json:"waiting"`       // in its lanes
	Next    time.Time `json:"next,omitzero"` // no job of it starts before; the zero time if none waits
	Counters
}

// Tenant returns the state of a tenant, all zero if it was never heard of.
func (i *Inspector) Tenant(ctx context.Context, tenant string) (TenantStats, error) {
	i, err := i.of(ctx, tenant)
	if err != nil {
		return TenantStats{}, err
	}
	all, err := i.tenants(ctx, []string{tenant})
	if err != nil {
		return TenantStats{}, err
	}
	return all[0], nil
}

// Tenants returns the tenants with waiting jobs in the order in which they are due, from the
// given place on (0 is the first), at most n. More reports whether others may follow: a page is
// short, too, if a tenant's last job has just started.
func (i *Inspector) Tenants(ctx context.Context, from, n int) (all []TenantStats, more bool, err error) {
	if from < 0 || n < 1 {
		return nil, false, nil
	}
	all, more, err = page(ctx, i, from, n, func(p *Inspector, from, n int) ([]TenantStats, error) {
		names, err := p.store.DuePage(ctx, from, n)
		if err != nil {
			return nil, p.failed("inspecting", err)
		}
		return p.tenants(ctx, names)
	}, func(a, b TenantStats) int { return a.Next.Compare(b.Next) })
	return slices.DeleteFunc(all, func(t TenantStats) bool { return t.Waiting == 0 }), more, err
}

func (i *Inspector) tenants(ctx context.Context, names []string) ([]TenantStats, error) {
	views, err := i.store.Tenants(ctx, names)
	if err != nil {
		return nil, i.failed("inspecting", err)
	}
	all := make([]TenantStats, len(views))
	for k, v := range views {
		all[k] = TenantStats{Tenant: v.Tenant, Waiting: v.Waiting, Next: envelope.Instant(v.Next), Counters: countersOf(v.Counts)}
	}
	return all, nil
}

// A Drop is the record of a job that was dropped.
type Drop struct {
	ID       string    `json:"id"`
	Tenant   string    `json:"tenant"`
	User     string    `json:"user"`
	Type     string    `json:"type,omitempty"` // empty if the job's names are too long to be kept
	Attempts int       `json:"attempts"`       // that it had
	Reason   Reason    `json:"reason"`
	Rule     string    `json:"rule,omitempty"` // which rule refused it, for ReasonRule and ReasonImpossible; for ReasonFull as in Receipt
	At       time.Time `json:"at"`
}

// Drops returns the newest drops, newest first, at most n. Redis keeps the last 100,000
// of accepted jobs, and the last 10,000 that were refused at the door.
func (i *Inspector) Drops(ctx context.Context, n int) ([]Drop, error) {
	if n < 1 {
		return nil, nil
	}
	all, _, err := page(ctx, i, 0, n, func(p *Inspector, _, n int) ([]Drop, error) { return p.drops(ctx, n) },
		func(a, b Drop) int { return b.At.Compare(a.At) })
	return all, err
}

func (i *Inspector) drops(ctx context.Context, n int) ([]Drop, error) {
	records, err := i.store.Drops(ctx, n)
	if err != nil {
		return nil, i.failed("inspecting", err)
	}
	drops := make([]Drop, len(records))
	for k, r := range records {
		drops[k] = Drop{
			Tenant: r.Lane.Tenant, User: r.Lane.User, Reason: Reason(r.Reason), Rule: r.Rule, At: envelope.Instant(r.At),
		}
		if job, ok := envelope.Head(r.Job); ok {
			drops[k].ID, drops[k].Type, drops[k].Attempts = job.Name(), job.Type, job.Failures
		}
	}
	return drops, nil
}

// A DeadJob is a job whose attempts are exhausted.
type DeadJob struct {
	Entry    string    `json:"entry"` // names it to Revive
	ID       string    `json:"id"`
	Tenant   string    `json:"tenant"`
	User     string    `json:"user"`
	Type     string    `json:"type"`
	Attempts int       `json:"attempts"` // how many there were
	Error    string    `json:"error"`    // of its last attempt
	At       time.Time `json:"at"`
}

// Dead returns the newest dead jobs, newest first, at most n: with "" of all, or of those that died
// before the one with the given [DeadJob.Entry], to read the list page by page. Redis keeps the
// last 100,000. If before is not an entry, the error wraps [ErrInvalidArgument].
func (i *Inspector) Dead(ctx context.Context, before string, n int) ([]DeadJob, error) {
	if n < 1 {
		return nil, nil
	}
	parts, err := i.each(ctx)
	if err != nil {
		return nil, err
	}
	last, ok := parseEntry(before, len(parts))
	if before != "" && !ok {
		return nil, fmt.Errorf("%w: entry %q; want %s", ErrInvalidArgument, before, wantEntry(len(parts)))
	}
	all, _, err := page(ctx, i, 0, n, func(p *Inspector, _, n int) ([]DeadJob, error) {
		if before == "" {
			return p.dead(ctx, "", n)
		}
		return p.dead(ctx, last.before(p.store.Number), n)
	}, func(a, b DeadJob) int {
		first, _ := parseEntry(a.Entry, len(parts))
		second, _ := parseEntry(b.Entry, len(parts))
		return first.newest(second)
	})
	return all, err
}

// dead returns the newest dead jobs of a partition before one of its stream.
func (i *Inspector) dead(ctx context.Context, before string, n int) ([]DeadJob, error) {
	records, err := i.store.Dead(ctx, before, n)
	if err != nil {
		return nil, i.failed("inspecting", err)
	}
	dead := make([]DeadJob, len(records))
	for k, r := range records {
		dead[k] = DeadJob{Entry: entryOf(i.store, r.Entry), Tenant: r.Lane.Tenant, User: r.Lane.User, Error: r.Error, At: envelope.Instant(r.At)}
		if job, ok := envelope.Head(r.Job); ok {
			dead[k].ID, dead[k].Type, dead[k].Attempts = job.Name(), job.Type, job.Failures
		}
	}
	return dead, nil
}
