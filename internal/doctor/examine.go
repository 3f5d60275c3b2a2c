package doctor

import (
	"context"

	"github.com/redis/go-redis/v9"

	keys "github.com/waterclock/waterclock/queue/doctor"
)

// Examine reads the keys of a queue and returns what should not be there: nothing for a queue
// that is sound, whether it is idle or busy.
func Examine(ctx context.Context, rdb redis.UniversalClient, name string) ([]Finding, error) {
	d, err := keys.New(rdb, name)
	if err != nil {
		return nil, err
	}
	found, err := d.Examine(ctx)
	return findingsOf(found), err
}

// Keys says what is wrong with the keys of a queue, after a repair if one is wanted.
func Keys(ctx context.Context, rdb redis.UniversalClient, name string, repair bool) (all []Finding, err error) {
	d, err := keys.New(rdb, name)
	if err != nil {
		return nil, err
	}
	var mended, left []keys.Damage
	if repair {
		mended, left, err = d.Repair(ctx)
	} else {
		left, err = d.Examine(ctx)
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

func findingsOf(found []keys.Damage) []Finding {
	var all []Finding
	for _, d := range found {
		all = append(all, Finding{What: d.Kind + " " + d.Key, Seen: d.Seen, Problem: d.Problem, Repair: d.Repair})
	}
	return all
}
