package doctor

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue"
)

// Examine reads the keys of a queue and returns what should not be there: nothing for a queue
// that is sound, whether it is idle or busy.
func Examine(ctx context.Context, rdb redis.UniversalClient, name string) ([]Finding, error) {
	inspector, err := queue.NewInspector(rdb, name)
	if err != nil {
		return nil, err
	}
	found, err := inspector.Examine(ctx)
	return findingsOf(found), err
}

// Keys says what is wrong with the keys of a queue, after a repair if one is wanted.
func Keys(ctx context.Context, i *queue.Inspector, repair bool) (all []Finding, err error) {
	var mended, left []queue.Damage
	if repair {
		mended, left, err = i.Repair(ctx)
	} else {
		left, err = i.Examine(ctx)
	}
	for _, f := range findingsOf(mended) {
		f.Seen, f.Problem = "repaired: "+f.Seen, ""
		all = append(all, f)
	}
	all = append(all, findingsOf(left)...)
	if err == nil && len(left) == 0 {
		all = append(all, Finding{What: "keys", Seen: "types, indexes, claims, states and counters are as they should be"})
	}
	return all, err
}

func findingsOf(found []queue.Damage) []Finding {
	var all []Finding
	for _, d := range found {
		all = append(all, Finding{What: d.Kind + " " + d.Key, Seen: d.Seen, Problem: d.Problem, Repair: d.Repair})
	}
	return all
}
