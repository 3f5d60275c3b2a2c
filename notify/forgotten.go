package notify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue"
)

const forgottenKept = 100_000 // entries of a stream, about

// ForgottenStream returns a [HandlerConfig.Forget] for any number of workers: it adds each
// target that is gone to the stream wc:{queue}:notify:forgotten in Redis, with the fields
// at, tenant, user, provider, app, token and why. The app reads it, with a consumer group
// say, and deletes its tokens. About the latest 100,000 entries are kept.
func ForgottenStream(rdb redis.UniversalClient) func(ctx context.Context, job queue.Info, gone Target, why error) error {
	return func(ctx context.Context, job queue.Info, gone Target, why error) error {
		provider, code := gone.Provider, ""
		var answer *ProviderError
		if errors.As(why, &answer) {
			provider, code = cmp.Or(provider, answer.Provider), cmp.Or(answer.Code, strconv.Itoa(answer.Status))
		}
		err := rdb.XAdd(ctx, &redis.XAddArgs{
			Stream: "wc:{" + job.Queue + "}:notify:forgotten", MaxLen: forgottenKept, Approx: true,
			Values: []any{
				"at", job.Started.UTC().Format(time.RFC3339Nano), "tenant", job.Tenant, "user", job.User,
				"provider", provider, "app", gone.App, "token", gone.Token, "why", code,
			},
		}).Err()
		if err != nil {
			return fmt.Errorf("notify: writing down a target that is gone: %w", err)
		}
		return nil
	}
}
