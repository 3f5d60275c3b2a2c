package notify

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
)

// A refused token is dropped, one that has replaced it is not; who has another secret
// can read nothing; and one worker at a time may mint.
func TestSharedToken(t *testing.T) {
	redistest.Each(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		s, err := newSharedToken(rdb, "apns", []byte("secret"))
		must(t, err)
		now := time.Now().Round(time.Microsecond)
		must(t, s.store(ctx, mintedToken{"new", now, now.Add(time.Hour)}))
		s.drop(ctx, "old")
		got, err := s.load(ctx)
		if err != nil || got.text != "new" || !got.minted.Equal(now) || !got.usable.Equal(now.Add(time.Hour)) {
			t.Errorf("loaded %+v, %v", got, err)
		}
		stranger, err := newSharedToken(rdb, "apns", []byte("another"))
		must(t, err)
		if stranger.key == s.key {
			t.Error("two secrets share a key")
		}
		stranger.key = s.key
		if got, err := stranger.load(ctx); err != nil || got.text != "" {
			t.Errorf("a stranger read %+v, %v", got, err)
		}
		s.drop(ctx, "new")
		if got, err := s.load(ctx); err != nil || got.text != "" {
			t.Errorf("after it was dropped: %+v, %v", got, err)
		}
		release, mine, err := s.lead(ctx)
		if err != nil || !mine {
			t.Errorf("the first: %v, %v", mine, err)
		}
		if _, mine, err := s.lead(ctx); err != nil || mine {
			t.Errorf("a second has the turn too: %v", err)
		}
		if left := rdb.TTL(ctx, s.key+":minting").Val(); left <= 0 || left > shareTurn {
			t.Errorf("the turn of a worker that dies ends after %v", left)
		}
		release()
		if _, mine, err := s.lead(ctx); err != nil || !mine {
			t.Errorf("after it was given back: %v, %v", mine, err)
		}
	})
}
