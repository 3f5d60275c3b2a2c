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
			offer(b, redis, clientOf(redis, queueName), n)
		})
	}
}

// What does it cost that a replica has to have them?
func BenchmarkDurableOffer(b *testing.B) {
	for _, n := range []int{1, 100} {
		for _, replicas := range []int{0, 1} {
			b.Run(fmt.Sprintf("replicas=%d/%d", replicas, n), func(b *testing.B) {
				redis := newCounted(b)
				redis.follow(b)
				client, err := queue.NewClient(redis, queueName, queue.ClientConfig{Durability: queue.Durability{Replicas: replicas}})
				if err != nil {
					b.Fatal(err)
				}
				offer(b, redis, client, n)
			})
		}
	}
}

// offer offers so many jobs at once, again and again.
func offer(b *testing.B, redis counted, client *queue.Client, n int) {
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
}

// queueJobs are the jobs of the scenarios, as waterclock takes them.
func queueJobs(n int) []queue.Job {
	jobs := make([]queue.Job, n)
	for i, j := range newJobs(n, tenants, perLane) {
		jobs[i] = queue.Job{Tenant: j.tenant, User: j.user, Type: "push", Payload: j.payload}
	}
	return jobs
}
