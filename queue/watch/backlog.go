package watch

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/waterclock/waterclock/internal/pace"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// A Backlog is what waits of a tenant, and for how long. Of its users only the two hundred that are due first are looked at.
type Backlog struct {
	Now     time.Time `json:"now"`
	Tenant  string    `json:"tenant"`
	Waiting int64     `json:"waiting"` // jobs in its lanes

	// Drains is how long it takes until the last of them has started, at the rates of its policy and of the queue's rules, after
	// the pauses that hold it, if no job is added. 0 if rules do not bound it. Limits by name, overrides, concurrency limits and
	// a lack of places may make it longer.
	Drains time.Duration `json:"drains_ns"`
	Rule   string        `json:"rule,omitempty"` // the rule that makes it so long
	User   string        `json:"user,omitempty"` // whose rule that is, if it is a user's
	Jobs   int64         `json:"jobs,omitempty"` // of how many jobs

	Oldest time.Time         `json:"oldest,omitzero"` // from when on the oldest job was to start, of five users with most waiting
	Looked int               `json:"looked"`          // at so many users
	Users  []queue.UserStats `json:"-"`               // these, in the order in which they are due
	Pauses []queue.Pause     `json:"-"`               // that hold the tenant, or all of the queue
}

// How many users of a tenant are looked at, and of how many of them the oldest job.
const usersLooked, oldestLooked = 200, 5

// Backlog looks at what waits of a tenant. It takes some thirty commands.
func (w *Watcher) Backlog(ctx context.Context, tenant string) (b Backlog, err error) {
	stats, err := w.Tenant(ctx, tenant)
	if err != nil {
		return b, err
	}
	b = Backlog{Tenant: tenant, Waiting: stats.Waiting}
	if b.Now, err = w.nowOf(ctx, tenant); err != nil {
		return b, err
	}
	if b.Users, err = w.Users(ctx, tenant, 0, usersLooked); err != nil {
		return b, err
	}
	b.Looked = len(b.Users)
	all, err := w.Pauses(ctx)
	if err != nil {
		return b, err
	}
	b.Pauses = slices.DeleteFunc(all, func(p queue.Pause) bool {
		return p.Scope != queue.ScopeQueue && (p.Scope != queue.ScopeTenant || p.Tenant != tenant)
	})
	in, err := w.Policies(ctx)
	if err != nil {
		return b, err
	}
	b.takes(in.Policies)
	b.Oldest, err = w.oldest(ctx, tenant, b.Users)
	return b, err
}

// takes finds out how long the backlog takes.
func (b *Backlog) takes(p queue.Policies) {
	policy := p.Policies[cmp.Or(p.Tenants[b.Tenant], p.Default)]
	consider := func(rules []throttle.Rule, jobs int64, user string) {
		if d, by := pace.Drains(jobs, rules, b.Now); d > b.Drains {
			b.Drains, b.Rule, b.User, b.Jobs = d, by.String(), user, jobs
		}
	}
	consider(p.Queue, b.Waiting, "")
	consider(policy.Tenant, b.Waiting, "")
	for _, u := range b.Users {
		consider(policy.User, int64(u.Waiting), u.User)
	}
	if b.Drains == 0 {
		return
	}
	held := time.Duration(0)
	for _, pause := range b.Pauses {
		held = max(held, pause.Until.Sub(b.Now))
	}
	b.Drains += held
}

// oldest returns from when on the oldest job of the users with most waiting was to start: what was scheduled ahead is not late.
func (w *Watcher) oldest(ctx context.Context, tenant string, users []queue.UserStats) (oldest time.Time, err error) {
	most := slices.Clone(users)
	slices.SortStableFunc(most, func(a, b queue.UserStats) int { return cmp.Compare(b.Waiting, a.Waiting) })
	for _, u := range most[:min(oldestLooked, len(most))] {
		jobs, err := w.Lane(ctx, tenant, u.User, 0, 1)
		if err != nil {
			return oldest, err
		}
		for _, j := range jobs {
			if oldest.IsZero() || j.Begin.Before(oldest) {
				oldest = j.Begin
			}
		}
	}
	return oldest, nil
}
