package watch

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/internal/errclass"
)

// Retrying returns those jobs of [queue.Inspector.Later] whose last attempt has failed, in the order
// of their next ones. It looks through the first 10,000 jobs that wait for their time.
func (w *Watcher) Retrying(ctx context.Context, from, n int) ([]queue.LaterJob, error) {
	const step, most = 500, 10_000
	var all []queue.LaterJob
	for at := 0; at < most && len(all) < from+n; at += step {
		some, err := w.Later(ctx, at, step)
		if err != nil {
			return nil, err
		}
		for _, job := range some {
			if job.Attempts > 0 {
				all = append(all, job)
			}
		}
		if len(some) < step {
			break
		}
	}
	return all[min(max(0, from), len(all)):min(max(0, from+n), len(all))], nil
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
