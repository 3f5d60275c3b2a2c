package main

import (
	"fmt"
	"testing"

	"github.com/waterclock/waterclock/queue"
)

// What does it cost to offer jobs, one or a hundred at once, into lanes of ten?
func BenchmarkOffer(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			redis := newCounted(b)
			client := clientOf(redis, queueName)
			jobs := queueJobs(100_000)
			redis.begin(b)
			for i := range b.N {
				from := i * n % len(jobs)
				if from == 0 && i > 0 { // or the lanes grow with the number of runs
					b.StopTimer()
					redis.FlushAll(b.Context())
					b.StartTimer()
				}
				if _, err := client.Enqueue(b.Context(), jobs[from:from+n]...); err != nil {
					b.Fatal(err)
				}
			}
			redis.report(b, n, "job")
		})
	}
}

// queueJobs are the jobs of the scenarios, as waterclock takes them.
func queueJobs(n int) []queue.Job {
	jobs := make([]queue.Job, n)
	for i, j := range newJobs(n, tenants, perLane) {
		jobs[i] = queue.Job{Tenant: j.tenant, User: j.user, Type: "push", Payload: j.payload}
	}
	return jobs
}
