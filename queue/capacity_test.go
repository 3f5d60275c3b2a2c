package queue_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/doctor"
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
	t.Parallel()
	sample.Slow(t)
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
		s.eventually(t, "one of each user has ended", func() bool { return stats(t, s.client).Done == 3 })
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
	t.Parallel()
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

// The doctor finds backlogs that say something else than lanes, and what it mends is right from then on.
func TestTheDoctorMendsBacklogs(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		p := policies(queue.Policy{UserCapacity: 100})
		p.Limits = map[string]queue.Limit{"domain": {Key: []string{"keys.domain"}, Capacity: 10, Rules: hourly}}
		setPolicies(t, s.client, p)
		for _, domain := range []string{"a", "b", "c"} {
			enqueue(t, s.client, keyed(append(jobs("school", "ann", 2), jobs("other", "bob", 3)...), "domain", domain)...)
		}
		const key = "wc:{push}:backlogs"
		backlogs := func() string {
			t.Helper()
			found, err := s.client.ZRangeWithScores(t.Context(), key, 0, -1).Result()
			must(t, err)
			return fmt.Sprint(found)
		}
		d, err := doctor.New(s.client, "push")
		must(t, err)
		before := backlogs()
		if found, err := d.Examine(t.Context()); err != nil || len(found) > 0 {
			t.Errorf("found %v, %v", found, err)
		}
		must(t, s.client.ZIncrBy(t.Context(), key, 4, "l:domain:a").Err())
		must(t, s.client.ZIncrBy(t.Context(), key, -2, "u:school:ann").Err())
		must(t, s.client.ZRem(t.Context(), key, "l:domain:c").Err())
		must(t, s.client.ZIncrBy(t.Context(), key, 1, "l:domain:gone").Err())
		found, err := d.Examine(t.Context())
		if want := "waiting jobs more than there are: l:domain:a 4, l:domain:c -5, l:domain:gone 1, and 1 others"; err != nil || len(found) != 1 || found[0].Seen != want {
			t.Errorf("found %+v, %v", found, err)
		}
		if _, left, err := d.Repair(t.Context()); err != nil || len(left) > 0 {
			t.Errorf("left %v, %v", left, err)
		}
		if after := backlogs(); after != before {
			t.Errorf("is  %s\nwas %s", after, before)
		}
		if got := outcomes(enqueue(t, s.client, keyed(jobs("school", "ann", 6), "domain", "c")...)); got != "ok | ok | ok | ok | ok | limit domain (c)" {
			t.Errorf("got %s", got)
		}
	})
}

// Offers and commits of a queue without such capacities know nothing of backlogs.
func TestWithoutACapacityThereAreNoBacklogs(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		p := policies(queue.Policy{Capacity: 100, User: hourly})
		p.Limits = map[string]queue.Limit{"domain": {Key: []string{"keys.domain"}, Rules: hourly}}
		setPolicies(t, s.client, p)
		must(t, s.client.Set(t.Context(), "wc:{push}:backlogs", "a text, which nobody reads", 0).Err())
		enqueue(t, s.client, append(jobs("school", "ann", 2), keyed(jobs("school", "ann", 2), "domain", "a")...)...)
		var got recorder
		runWorker(t, s.client, &got, queue.WorkerConfig{})
		s.eventually(t, "one has started", func() bool { return stats(t, s.client).Done == 1 })
		must(t, newInspector(t, s.client, "push").Pause(t.Context(), queue.Pause{Scope: queue.ScopeQueue, Until: time.Now().Add(time.Hour)}))
		if n, err := newInspector(t, s.client, "push").Purge(t.Context(), "school"); n != 3 || err != nil {
			t.Errorf("purged %d, %v", n, err)
		}
	})
}

// A limit by name bounds how many jobs wait for a value of its key, whoever offers them. A job that finds no room in one backlog
// counts in none.
func TestACapacityOfALimit(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		set := func(capacity int) {
			p := policies(queue.Policy{UserCapacity: 4, User: hourly})
			p.Limits = map[string]queue.Limit{
				"all":    {Capacity: 10, Types: []string{"push"}},
				"domain": {Key: []string{"keys.domain"}, Capacity: capacity, Concurrency: queue.Concurrency{Jobs: 9}, Each: map[string]queue.Limit{"big": {Capacity: 6}}},
			}
			setPolicies(t, s.client, p)
		}
		offers := func(what, want string, jobs ...queue.Job) {
			t.Helper()
			if got := outcomes(enqueue(t, s.client, jobs...)); got != want {
				t.Errorf("%s: got  %s\nwant %s", what, got, want)
			}
		}
		to := func(domain, tenant string, n int) []queue.Job { return keyed(jobs(tenant, "u", n), "domain", domain) }
		set(0)
		offers("before there is a capacity", "ok", to("small", "old", 1)...)
		set(2)
		offers("small", "ok | ok | limit domain (small)", to("small", "a", 3)...)
		offers("of another tenant, to another domain", "limit domain (small) | ok | ok", append(to("small", "b", 1), to("big", "b", 2)...)...)
		offers("the user's", "ok | ok | user u", to("big", "b", 3)...)
		offers("big, and all", "ok | ok | limit domain (big)", to("big", "c", 3)...)
		if got := outcomes(enqueue(t, s.client, typed(to("other", "d", 2), "chat")...)); got != "ok | ok" {
			t.Errorf("of no type that all is about: %s", got)
		}
		offers("all, as nothing was counted that was refused", "ok | limit all", to("third", "d", 2)...)
		key, err := newInspector(t, s.client, "push").LimitKey(t.Context(), "domain", "big")
		if must(t, err); key.Capacity != 6 || key.Backlog != 6 {
			t.Errorf("shown as %+v", key)
		}
		drops, err := newInspector(t, s.client, "push").Drops(t.Context(), 1)
		if must(t, err); drops[0].Rule != "capacity of limit all" || drops[0].Reason != queue.ReasonFull {
			t.Errorf("dropped as %+v", drops[0])
		}
		if n, err := newInspector(t, s.client, "push").Purge(t.Context(), "b"); n != 4 || err != nil {
			t.Errorf("purged %d, %v", n, err)
		}
		set(1)
		offers("a lower capacity", "limit domain (small) | ok", append(to("small", "e", 1), to("big", "e", 1)...)...)
	})
}

// A place that the doctor takes out of a lane counts no more.
func TestTheDoctorCountsWhatItRemoves(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		p := policies(queue.Policy{UserCapacity: 2})
		p.Limits = map[string]queue.Limit{"domain": {Key: []string{"keys.domain"}, Capacity: 2}}
		setPolicies(t, s.client, p)
		enqueue(t, s.client, keyed([]queue.Job{named("", "ann", news), named("", "ann")}, "domain", "a")...)
		must(t, s.client.Del(t.Context(), "wc:{push}:fold:school:ann").Err())
		d, err := doctor.New(s.client, "push")
		must(t, err)
		mended, left, err := d.Repair(t.Context())
		if must(t, err); len(mended) != 1 || mended[0].Kind != "stub" || len(left) > 0 {
			t.Errorf("mended %+v, left %+v", mended, left)
		}
		if got := outcomes(enqueue(t, s.client, keyed([]queue.Job{named("", "ann"), named("", "ann")}, "domain", "a")...)); got != "ok | user ann" {
			t.Errorf("got %s", got)
		}
	})
}
