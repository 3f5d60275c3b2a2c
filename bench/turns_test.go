package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/waterclock/waterclock/throttle"
)

// What does a question for instants of one leak cost, where 16 callers take turns?
func BenchmarkTurns(b *testing.B) {
	for _, wanted := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("%d wanted", wanted), func(b *testing.B) {
			redis := newCounted(b)
			limiter := throttle.New(throttle.NewRedisStore(redis, "rl"))
			redis.begin(b)
			for i := range b.N {
				subject := throttle.Subject{Key: "limit", Rules: []throttle.Rule{throttle.Leak(1000, time.Second)}, Weight: 4}
				of := make([]throttle.Request, wanted)
				for k := range of {
					of[k] = throttle.Request{Subjects: []throttle.Subject{subject}, By: fmt.Sprintf("push/%d", i%16), More: wanted == 64}
				}
				if _, err := limiter.ReserveMany(b.Context(), 3*time.Millisecond, 6*time.Millisecond, of...); err != nil {
					b.Fatal(err)
				}
			}
			redis.report(b, 1, "question")
			b.ReportMetric(redis.busy(b, "evalsha")/float64(b.N), "redis-µs/op")
		})
	}
}
