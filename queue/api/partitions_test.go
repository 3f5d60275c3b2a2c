package api_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/api"
)

// A queue is divided over HTTP, once. Its jobs are shown, revived and deleted like those of another one.
func TestADividedQueue(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Start(t).Client(t), nil)
	const q = "/v1/queues/push"
	var set api.PoliciesInForce
	s.post(q+"/policies", fields{"source": "partitions: 4\n" + somePolicies, "version": 0}, &set)
	if !strings.HasPrefix(set.Source, "partitions: 4\n") {
		t.Errorf("in force: %s", set.Source)
	}
	body := fmt.Sprintf(`{"source":"partitions: 3","version":%d}`, set.Version)
	refused := s.send(s.request("PUT", q+"/policies", "application/json", body))
	if refused.status != http.StatusConflict || refused.problem.Type != "urn:waterclock:divided" || !strings.Contains(refused.text, "it has 4 partitions, not 3: the number is fixed when a queue is used first; want the number that it has, or none") {
		t.Errorf("another number: %s", refused.text)
	}
	var diff api.PolicyChanges
	s.post(q+"/policies/diff", fields{"source": somePolicies}, &diff)
	if len(diff.Changes) > 0 {
		t.Errorf("a file that leaves the number as it is changes %q", diff.Changes)
	}

	var jobs []string
	for k := range 20 {
		jobs = append(jobs, fmt.Sprintf(`{"id":"%d","tenant":"school-%d","user":"u","type":"push"}`, k, k))
	}
	var offered api.Receipts
	s.expect(s.send(s.request("POST", q+"/jobs", "application/json", "["+strings.Join(jobs, ",")+"]")), &offered)
	s.work(func(context.Context, *asynq.Task) error { return asynq.SkipRetry })
	var dead api.List[queue.DeadJob]
	redistest.Eventually(t, 20*time.Second, "all jobs are dead", func() bool {
		dead = api.List[queue.DeadJob]{}
		s.get(q+"/dead?n=100", &dead)
		return len(dead.Items) == 20
	})
	s.post(q+"/pause", fields{"for": "1h"}, nil)
	var done api.Affected
	s.post(q+"/revive", fields{"entries": []string{dead.Items[0].Entry, dead.Items[10].Entry}}, &done)
	if done.Jobs != 2 {
		t.Errorf("%d jobs were revived", done.Jobs)
	}
	done = api.Affected{}
	s.post(q+"/delete", fields{"entries": []string{dead.Items[0].Entry, dead.Items[1].Entry}}, &done)
	if done.Jobs != 1 {
		t.Errorf("%d jobs were deleted", done.Jobs)
	}
	var left api.List[queue.DeadJob]
	s.get(q+"/dead?n=100", &left)
	var state api.QueueState
	s.get(q, &state)
	if len(left.Items) != 17 || state.Stats.Waiting != 2 || state.Stats.Dead != 20 {
		t.Errorf("%d dead jobs are left, %+v", len(left.Items), state.Stats)
	}
}
