package dashboard

import (
	"context"
	"net/url"
	"slices"
	"time"

	"github.com/waterclock/waterclock/queue"
)

// How many keys are read of each limit, to find the fullest one, and for the page of one limit.
const (
	keysOfEach = 20
	keysOfOne  = 200
)

// A limitsView is the page of all limits by name.
type limitsView struct{ queue.LimitsNow }

// A limitView is the page of a limit by name.
type limitView struct {
	queue.LimitsNow
	Of     queue.LimitNow
	Pauses map[string]queue.Pause // of its keys
}

// A keyView is the page of a limit by name for the values of its key.
type keyView struct {
	Now     time.Time
	Limit   string
	Of      queue.LimitKey
	Because queue.Explanation // its rules, for the template that shows rules
	Pauses  []queue.Pause
}

func readLimits(ctx context.Context, w *watched, _ url.Values) (any, error) {
	now, err := w.inspector.Limits(ctx, keysOfEach)
	return limitsView{now}, err
}

func readLimit(ctx context.Context, w *watched, q url.Values) (any, error) {
	now, err := w.inspector.Limits(ctx, keysOfOne)
	if err != nil {
		return nil, err
	}
	k := slices.IndexFunc(now.Limits, func(l queue.LimitNow) bool { return l.Name == q.Get("l") })
	if k < 0 {
		return nil, notFound("The policies have no such limit.")
	}
	v := limitView{now, now.Limits[k], make(map[string]queue.Pause)}
	all, err := w.inspector.Pauses(ctx)
	for _, p := range all {
		if p.Scope == queue.ScopeLimit && p.Limit == v.Of.Name {
			v.Pauses[p.Key] = p
		}
	}
	return v, err
}

func readKey(ctx context.Context, w *watched, q url.Values) (any, error) {
	v := keyView{Limit: q.Get("l")}
	var err error
	if v.Of, err = w.inspector.LimitKey(ctx, v.Limit, q.Get("k")); err != nil {
		return nil, err
	}
	if v.Now, err = w.inspector.Now(ctx); err != nil {
		return nil, err
	}
	v.Because = queue.Explanation{Now: v.Now, Rules: v.Of.Rules}
	all, err := w.inspector.Pauses(ctx)
	for _, p := range all {
		if p.Scope == queue.ScopeLimit && p.Limit == v.Limit && p.Key == v.Of.Key {
			v.Pauses = append(v.Pauses, p)
		}
	}
	return v, err
}
