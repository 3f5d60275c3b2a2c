package store

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Ring keeps the newest points of a queue, one for each step, and never more than Points of
// them: a point takes the place of the one that is a whole round older. Two programs that write the
// same step do no harm: the later point stays. What a point says the caller knows; the store keeps its text.
type Ring struct {
	Step   time.Duration // whole seconds: they are part of the key
	Points int
	Of     string // what it is of, as part of the key; "" for the queue as a whole
}

// step returns which step an instant lies in.
func (r Ring) step(at int64) int64 { return at / r.Step.Microseconds() }

// place returns the field of the hash in which the point of a step stands. The number of the step is kept with the
// point, so that a reader can tell it from the point of a round before.
func (r Ring) place(step int64) string { return strconv.FormatInt(step%int64(r.Points), 10) }

// ringKey returns the key of a ring.
func (s *Store) ringKey(r Ring) string {
	key := s.key.Chart(int64(r.Step / time.Second))
	if r.Of != "" {
		key += ":" + r.Of
	}
	return key
}

// Charted returns the point of a ring in whose step an instant lies, in one round trip; "" if there is none yet.
func (s *Store) Charted(ctx context.Context, r Ring, at int64) (string, error) {
	text, err := s.client.HGet(ctx, s.ringKey(r), r.place(r.step(at))).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	step, point, _ := strings.Cut(text, " ")
	if step != strconv.FormatInt(r.step(at), 10) {
		return "", err
	}
	return point, err
}

// Chart puts a point into rings, in one round trip. A ring to which nothing is added for a whole round expires.
func (s *Store) Chart(ctx context.Context, rings []Ring, at int64, point string) error {
	pipe := s.client.Pipeline()
	for _, r := range rings {
		step := r.step(at)
		pipe.HSet(ctx, s.ringKey(r), r.place(step), strconv.FormatInt(step, 10)+" "+point)
		pipe.PExpire(ctx, s.ringKey(r), r.Step*time.Duration(r.Points))
	}
	_, err := pipe.Exec(ctx)
	return err
}

// ChartOf returns the points of a ring, in no order, in one round trip. After a time in which nobody wrote points, some
// may be older than a round: a point says its own instant.
func (s *Store) ChartOf(ctx context.Context, r Ring) ([]string, error) {
	texts, err := s.client.HVals(ctx, s.ringKey(r)).Result()
	for i, text := range texts {
		_, texts[i], _ = strings.Cut(text, " ")
	}
	return texts, err
}
