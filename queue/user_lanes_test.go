package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/queuetest"
)

// A chat of a user who has bulk waiting, in a lane of its own, and gets more of it again and again, has the next turn or the
// one after it, also where the user's own rules keep both waiting.
func TestLanesOfOneUser(t *testing.T) {
	t.Parallel()
	const byName = "\nlimits: {bulk: {jobs: {type: bulk}, key: [tenant, user], rules: [{window: 1000/1h}]}}\n"
	for name, policy := range map[string]string{
		"spacing":     "default: p\npolicies: {p: {user: {rules: [{spacing: 1s}]}}}" + byName,
		"concurrency": "default: p\npolicies: {p: {user: {concurrency: 1}}}" + byName,
	} {
		t.Run(name, func(t *testing.T) {
			p, err := queue.ParsePolicies(name, []byte(policy))
			if err != nil {
				t.Fatal(err)
			}
			takes := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { time.Sleep(time.Second); return nil })
			queuetest.Run(t, queuetest.Config{Policies: p, Handler: takes}, func(t *testing.T, q *queuetest.Queue) {
				job := queue.Job{Tenant: "a", User: "b", Type: "bulk"}
				for range 10 {
					q.Enqueue(job)
				}
				q.Advance(5 * time.Second)
				chat := job
				chat.Type = "chat"
				q.Enqueue(chat)
				offered := time.Now()
				for range 60 { // a minute, a bulk job a second
					q.Enqueue(job)
					q.Advance(time.Second)
				}
				for _, s := range q.Starts() {
					if s.Type == "chat" {
						if wait := s.Started.Sub(offered); wait > 2*time.Second {
							t.Errorf("the chat waited %v, want two turns of a second at most", wait)
						}
						return
					}
				}
				t.Error("the chat has not started within a minute")
			})
		})
	}
}
