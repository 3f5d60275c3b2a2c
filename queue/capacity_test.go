package queue_test

import (
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// outcomes writes what became of jobs: "ok", or whose capacity refused them.
func outcomes(receipts []queue.Receipt) string {
	var all []string
	for _, r := range receipts {
		switch {
		case r.Status != queue.Dropped:
			all = append(all, "ok")
		case r.Reason != queue.ReasonFull:
			all = append(all, string(r.Reason))
		case r.Rule == "":
			all = append(all, "tenant")
		default:
			all = append(all, strings.TrimPrefix(r.Rule, "capacity of "))
		}
	}
	return strings.Join(all, " | ")
}

// hourly lets each user start one job an hour.
var hourly = []throttle.Rule{throttle.Window(1, time.Hour)}

// A user who floods fills a backlog of their own: the tenant's others find room.
func TestACapacityOfEachUser(t *testing.T) {
	onStages(t, func(t *testing.T, s stage) {
		setPolicies(t, s.client, policies(queue.Policy{User: hourly, UserCapacity: 3, Capacity: 6}))
		offers := func(what, want string, jobs ...queue.Job) {
			t.Helper()
			if got := outcomes(enqueue(t, s.client, jobs...)); got != want {
				t.Errorf("%s: got  %s\nwant %s", what, got, want)
			}
		}
		offers("a flood, and one of another user among it", "ok | ok | ok | user flood | ok | user flood",
			named("", "flood"), named("", "flood", high), named("", "flood", low, news), named("", "flood"), named("", "ann"), named("", "flood", high))
		offers("a newer job takes the place of one that waits", "ok", named("", "flood", news))
		offers("jobs for later do not wait", "ok", named("", "flood", notBefore(time.Now().Add(24*time.Hour))))
		offers("the tenant's capacity", "ok | ok | tenant", named("", "ann"), named("", "bob"), named("", "ann"))
		var got recorder
		stop := runWorker(t, s.client, &got, queue.WorkerConfig{})
		s.eventually(t, "one of each user has started", func() bool { return stats(t, s.client).Waiting == 3 })
		stop()
		offers("room again", "ok | user flood | ok | ok | tenant",
			named("", "flood"), named("", "flood"), named("", "ann"), named("", "bob"), named("", "bob"))
		if n, err := newInspector(t, s.client, "push").Purge(t.Context(), "school"); n != 6 || err != nil {
			t.Errorf("purged %d, %v", n, err)
		}
		offers("purged", "ok | ok | ok | user flood", named("", "flood"), named("", "flood"), named("", "flood"), named("", "flood"))
	})
}

// A capacity of users counts the jobs that wait when it is set.
func TestACapacityOfUsersCountsWhatWaits(t *testing.T) {
	onStages(t, func(t *testing.T, s stage) {
		limits := map[string]queue.Limit{"chat": {Types: []string{"chat"}, Rules: hourly}}
		set := func(capacity int, limits map[string]queue.Limit) {
			p := policies(queue.Policy{User: hourly, UserCapacity: capacity})
			p.Limits = limits
			setPolicies(t, s.client, p)
		}
		set(0, nil)
		enqueue(t, s.client, jobs("school", "ann", 5)...)
		for _, step := range []struct {
			capacity int
			limits   map[string]queue.Limit
			want     string
		}{
			{4, nil, "user ann"}, {6, nil, "ok | user ann"}, {8, limits, "ok | ok | user ann"}, {0, limits, "ok"},
			{9, nil, "ok | user ann"}, // one to whom a limit by name applies was offered when there was no capacity
			{10, limits, "ok | user ann"},
		} {
			set(step.capacity, step.limits)
			n := len(strings.Split(step.want, " | "))
			offered := append(typed(jobs("school", "ann", 1), "chat"), jobs("school", "ann", 3)...)[:n]
			if got := outcomes(enqueue(t, s.client, offered...)); got != step.want {
				t.Errorf("%+v: got %s", step, got)
			}
		}
	})
}
