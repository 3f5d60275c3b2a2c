package watch

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/errclass"
)

// Retrying returns those jobs of [queue.Inspector.Later] whose last attempt has failed, in the order
// of their next ones. It looks through the first 10,000 jobs that wait for their time; in a queue with partitions
// through an equal part of so many in each, and at least through 500.
func (w *Watcher) Retrying(ctx context.Context, from, n int) ([]queue.LaterJob, error) {
	found, err := inEach(ctx, w, "inspecting", func(l *look) ([]queue.LaterJob, error) { return l.retrying(ctx, from+n) })
	if err != nil {
		return nil, err
	}
	all := slices.Concat(found...)
	slices.SortStableFunc(all, func(a, b queue.LaterJob) int { return a.At.Compare(b.At) })
	return all[min(max(0, from), len(all)):min(max(0, from+n), len(all))], nil
}

// retrying returns the first jobs of a partition that are attempted again, n or a few more.
func (l *look) retrying(ctx context.Context, n int) (all []queue.LaterJob, err error) {
	const step, most = 500, 10_000
	for at := 0; at < l.share(most) && len(all) < n; at += step {
		some, err := l.store.LaterPage(ctx, at, step)
		if err != nil {
			return nil, err
		}
		for _, v := range some {
			if job, ok := envelope.Head(v.Job); ok && job.Failures > 0 {
				all = append(all, queue.LaterJob{
					ID: job.Name(), Tenant: v.Lane.Tenant, User: v.Lane.User, Type: job.Type, At: envelope.Instant(v.At), Attempts: job.Failures, Error: job.Error,
				})
			}
		}
		if len(some) < step {
			break
		}
	}
	return all, nil
}

// A FailureClass is what failed jobs have in common: the text of their errors, without what
// differs between two of a kind, such as numbers.
type FailureClass struct {
	Class    string    `json:"class"`         // such as "provider says 503 after #"
	Retrying int       `json:"retrying"`      // jobs that wait for their next attempt
	Dead     int       `json:"dead"`          // jobs without attempts left
	Example  string    `json:"example"`       // the whole error of one of them
	Last     time.Time `json:"last,omitzero"` // when the newest of the dead ones ended; the zero time if there is none
}

// Failures returns the classes of the errors of the first n jobs that are to be attempted
// again, and of the newest n dead ones. That with most jobs comes first.
func (w *Watcher) Failures(ctx context.Context, n int) ([]FailureClass, error) {
	retrying, err := w.Retrying(ctx, 0, n)
	if err != nil {
		return nil, err
	}
	dead, err := w.Dead(ctx, "", n)
	if err != nil {
		return nil, err
	}
	classes := make(map[string]*FailureClass)
	class := func(text string) *FailureClass {
		name := errclass.Of(text)
		if classes[name] == nil {
			classes[name] = &FailureClass{Class: name, Example: text}
		}
		return classes[name]
	}
	for _, job := range dead {
		c := class(job.Error)
		if c.Dead++; job.At.After(c.Last) {
			c.Last = job.At
		}
	}
	for _, job := range retrying {
		class(job.Error).Retrying++
	}
	all := make([]FailureClass, 0, len(classes))
	for _, c := range classes {
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b FailureClass) int {
		return cmp.Or(cmp.Compare(b.Retrying+b.Dead, a.Retrying+a.Dead), cmp.Compare(a.Class, b.Class))
	})
	return all, nil
}
