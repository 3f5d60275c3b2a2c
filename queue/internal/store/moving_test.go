package store

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
)

// A mover answers scripts as a cluster does whose slot moves, so many times.
type mover struct {
	times  int
	answer string
}

type movedError string

func (e movedError) Error() string { return string(e) }
func (movedError) RedisError()     {}

func (m *mover) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m *mover) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (m *mover) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if m.times > 0 && strings.HasPrefix(cmd.Name(), "eval") {
			m.times--
			cmd.SetErr(movedError(m.answer))
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

// A slot that moves costs an offer time, and not the offer; one that never comes to rest is
// an error.
func TestMovingSlots(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{"MOVED 297 127.0.0.1:7001", "ASK 297 127.0.0.1:7001", "TRYAGAIN Multiple keys", "CLUSTERDOWN Hash slot"} {
		for times, works := range map[int]bool{1: true, 10: true, 1000: false} {
			synctest.Test(t, func(t *testing.T) {
				client := redistest.Mini(t)
				client.AddHook(&mover{times, answer})
				s, err := New(client, "q")
				if err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				_, err = s.Offer(t.Context(), Offer{
					Batch: "b", Keep: time.Minute, Tenants: []OfferTenant{{Name: "t"}}, Jobs: []OfferJob{{Lane: laneOf("u"), Body: []byte("job")}},
				})
				if (err == nil) != works || time.Since(begin) > 5*time.Second {
					t.Errorf("%s, %d times: %v after %v", answer, times, err, time.Since(begin))
				}
			})
		}
	}
}
