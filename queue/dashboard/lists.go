package dashboard

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"time"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
)

// A list is a page of rows of one kind.
type list struct {
	Now  time.Time
	Rows any
	All  int // how many there are, where that is known
	pager
	Tenant, Reason string // what they are filtered by
	Counts         []count
	Next           string // what the part after this one begins behind
	Retrying       bool
	Failures       []watch.FailureClass
}

// A count is how often something is.
type count struct {
	Name string
	N    int
}

// part returns one part of a list that is known whole.
func part[T any](all []T, q url.Values) ([]T, pager) {
	from := min(number(q, "from"), len(all))
	rows := all[from:min(from+rowsOf, len(all))]
	return rows, newPager(from, len(rows), from+len(rows) < len(all))
}

func readRunning(ctx context.Context, w *watched, q url.Values) (any, error) {
	now, err := w.inspector.Now(ctx)
	if err != nil {
		return nil, err
	}
	value, err := w.cache.get(ctx, reading{"all that runs", pageAge, func(ctx context.Context) (any, error) { return w.inspector.Running(ctx) }})
	if err != nil {
		return nil, err
	}
	all, _ := value.([]watch.RunningJob)
	l := list{Now: now, All: len(all), Tenant: q.Get("t")}
	holders := make(map[string]int)
	for _, j := range all {
		holders[j.Tenant]++
	}
	l.Counts = most(holders, 5)
	if l.Tenant != "" {
		all = slices.DeleteFunc(slices.Clone(all), func(j watch.RunningJob) bool { return j.Tenant != l.Tenant })
	}
	l.Rows, l.pager = part(all, q)
	return l, nil
}

// most returns the names that are counted most.
func most(counts map[string]int, n int) (all []count) {
	for name, k := range counts {
		all = append(all, count{name, k})
	}
	slices.SortFunc(all, func(a, b count) int { return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Name, b.Name)) })
	return all[:min(n, len(all))]
}

func readWorkers(ctx context.Context, w *watched, _ url.Values) (any, error) {
	now, err := w.inspector.Now(ctx)
	if err != nil {
		return nil, err
	}
	all, err := w.inspector.Workers(ctx)
	return list{Now: now, Rows: all, All: len(all)}, err
}

func readLater(ctx context.Context, w *watched, q url.Values) (any, error) {
	now, err := w.inspector.Now(ctx)
	if err != nil {
		return nil, err
	}
	from := number(q, "from")
	l := list{Now: now, Retrying: q.Get("failed") != ""}
	read := w.inspector.Later
	if l.Retrying {
		read = w.inspector.Retrying
	}
	all, err := read(ctx, from, rowsOf+1)
	more := len(all) > rowsOf
	all = all[:min(rowsOf, len(all))]
	l.Rows, l.pager = all, newPager(from, len(all), more)
	return l, err
}

// failuresLooked is among how many jobs kinds of errors are counted.
const failuresLooked, failuresShown = 200, 8

func readDead(ctx context.Context, w *watched, q url.Values) (any, error) {
	now, err := w.inspector.Now(ctx)
	if err != nil {
		return nil, err
	}
	l := list{Now: now, Tenant: q.Get("t")}
	looks := rowsOf
	if l.Tenant != "" {
		looks = 20 * rowsOf
	}
	all, err := w.inspector.Dead(ctx, q.Get("before"), looks)
	if err != nil {
		return nil, err
	}
	if len(all) == looks {
		l.Next = all[len(all)-1].Entry
	}
	if l.Failures, err = w.inspector.Failures(ctx, failuresLooked); err != nil {
		return nil, err
	}
	l.Failures = l.Failures[:min(failuresShown, len(l.Failures))]
	if l.Tenant != "" {
		all = slices.DeleteFunc(all, func(d queue.DeadJob) bool { return d.Tenant != l.Tenant })
	}
	l.Rows, l.From = all, len(q.Get("before"))
	return l, nil
}

// reasons say what a reason of a drop means.
var reasons = map[queue.Reason]string{
	queue.ReasonFull:       "The backlog of the tenant, or that of the rule beside it, was at its capacity.",
	queue.ReasonRule:       "A rule that drops refused it.",
	queue.ReasonExpired:    "Its slot would have come after its latest start, or after the policy's max_wait.",
	queue.ReasonCollapsed:  "A newer job with the same collapse key took its place.",
	queue.ReasonImpossible: "It costs more than a rule ever admits.",
	queue.ReasonCancelled:  "Somebody cancelled it.",
	queue.ReasonPurged:     "Somebody dropped all waiting jobs of the tenant.",
	queue.ReasonDuplicate:  "An asynq task whose ID a living job has.",
	queue.ReasonBroken:     "A key of its tenant in Redis holds something else.",
}

// dropsLooked is how many of the newest drops are looked at.
const dropsLooked = 1000

func readDrops(ctx context.Context, w *watched, q url.Values) (any, error) {
	now, err := w.inspector.Now(ctx)
	if err != nil {
		return nil, err
	}
	value, err := w.cache.get(ctx, reading{"the newest drops", pageAge, func(ctx context.Context) (any, error) { return w.inspector.Drops(ctx, dropsLooked) }})
	if err != nil {
		return nil, err
	}
	newest, _ := value.([]queue.Drop)
	l := list{Now: now, Tenant: q.Get("t"), Reason: q.Get("reason"), All: len(newest)}
	reasons := make(map[string]int)
	var all []queue.Drop
	for _, d := range newest {
		reasons[string(d.Reason)]++
		if (l.Tenant == "" || d.Tenant == l.Tenant) && (l.Reason == "" || string(d.Reason) == l.Reason) {
			all = append(all, d)
		}
	}
	l.Counts = most(reasons, 20)
	l.Rows, l.pager = part(all, q)
	return l, nil
}

func readPauses(ctx context.Context, w *watched, q url.Values) (any, error) {
	now, err := w.inspector.Now(ctx)
	if err != nil {
		return nil, err
	}
	all, err := w.inspector.Pauses(ctx)
	l := list{Now: now, All: len(all)}
	l.Rows, l.pager = part(all, q)
	return l, err
}
