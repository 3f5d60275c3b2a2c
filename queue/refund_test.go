package queue

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/throttle"
)

func TestASlotIsRefundedOnce(t *testing.T) {
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		h := newHand(t, client, Policy{User: []throttle.Rule{throttle.TokenBucket(1, time.Hour, 2)}})
		h.offer("u", "u", "u", "u")
		jobs := h.pull(time.Millisecond, lease)
		if len(jobs) != 2 {
			t.Fatalf("pulled %d, want 2", len(jobs))
		}
		for _, want := range []int64{1, 1} { // the second time its reply was lost
			if got := h.outcome(h.scripts.refund, jobs[0].token, 1); got != want {
				t.Errorf("refund: %d, want %d", got, want)
			}
		}
		if more := h.pull(time.Millisecond, lease); len(more) != 1 {
			t.Errorf("pulled %d more, want the one whose slot was refunded", len(more))
		}
		if got := h.outcome(h.scripts.refund, "999", 0); got != 0 {
			t.Errorf("refund of a lost claim: %d, want 0", got)
		}
	})
}

func TestRefundOfALastAttemptLetsTheNextCome(t *testing.T) {
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		h := newHand(t, client, Policy{User: []throttle.Rule{throttle.Window(1, time.Hour)}})
		h.offer("u", "u")
		for range 2 {
			jobs := h.pull(0, lease)
			if len(jobs) != 1 {
				t.Fatalf("pulled %d, want 1", len(jobs))
			}
			h.outcome(h.scripts.refund, jobs[0].token, 1)
			h.outcome(h.scripts.fail, jobs[0].token, -1, "gone")
		}
		if s := h.stats(); s.Dead != 2 || s.Waiting != 0 {
			t.Errorf("%+v, want both dead", s)
		}
	})
}
