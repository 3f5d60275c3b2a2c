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

func findingsOf(found []queue.Damage) []Finding {
	var all []Finding
	for _, d := range found {
		all = append(all, Finding{What: d.Kind + " " + d.Key, Seen: d.Seen, Problem: d.Problem})
	}
	return all
}
