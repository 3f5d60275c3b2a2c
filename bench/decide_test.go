package main

import (
	"strconv"
	"testing"
	"time"

	"github.com/waterclock/waterclock/throttle"
)

const microKeys = 10_000

func requests(n int) []throttle.Request {
	rules := []throttle.Rule{throttle.Window(10, time.Minute), throttle.Spacing(3 * time.Second)}
	requests := make([]throttle.Request, n)
	for i := range requests {
		requests[i].Subjects = []throttle.Subject{{Key: "user-" + strconv.Itoa(i%microKeys), Rules: rules}}
	}
	return requests
}

// What does one decision cost a caller that is alone?
func BenchmarkAllow(b *testing.B) {
	redis := newCounted(b)
	limiter := throttle.New(throttle.NewRedisStore(redis, "rl"))
	of := requests(microKeys)
	redis.begin(b)
	for i := range b.N {
		if _, err := limiter.Allow(b.Context(), 1, of[i%microKeys].Subjects...); err != nil {
			b.Fatal(err)
		}
	}
	redis.report(b, 1, "decision")
}

// What does one decision cost when many callers ask at once? They share round trips.
func BenchmarkAllowParallel(b *testing.B) {
	redis := newCounted(b)
	limiter := throttle.New(throttle.NewRedisStore(redis, "rl"))
	of := requests(microKeys)
	b.SetParallelism(16)
	redis.begin(b)
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			if _, err := limiter.Allow(b.Context(), 1, of[i%microKeys].Subjects...); err != nil {
				b.Error(err)
				return
			}
		}
	})
	redis.report(b, 1, "decision")
}

// What do a hundred decisions in one call cost?
func BenchmarkAllowMany(b *testing.B) {
	redis := newCounted(b)
	limiter := throttle.New(throttle.NewRedisStore(redis, "rl"))
	of := requests(microKeys)
	redis.begin(b)
	for i := range b.N {
		from := i * decisionBatch % microKeys
		if _, err := limiter.AllowMany(b.Context(), of[from:from+decisionBatch]...); err != nil {
			b.Fatal(err)
		}
	}
	redis.report(b, decisionBatch, "decision")
}
