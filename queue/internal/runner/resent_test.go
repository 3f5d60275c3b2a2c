package runner

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// A commit that is sent again without a lane that is not as it was writes all about the others,
// and leaves that lane as if nothing had been decided: its next job has the slot, the place and
// the room under the concurrency limit.
func TestACommitIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.policies.Policies["p"] = schedule.Policy{
			User:            rules.Compile(schedule.Grace*time.Microsecond, rules.Rule{Kind: rules.Spacing, Limit: 1, Period: time.Hour}),
			UserConcurrency: schedule.Concurrency{Jobs: 1},
		}
		s.handler = func(string, Attempt) Outcome { return Outcome{} }
		s.offer("gone", 2)
		s.offer("there", 2)
		w := s.join("w")
		both := false
		w.wire.intercept(func(cmd redis.Cmder, do func() error) error {
			args := fmt.Sprint(cmd.Args()...)
			if !both && isCommit(cmd) && strings.Contains(args, " t:gone:1") && strings.Contains(args, " t:there:1") {
				both = true
				s.client.LPop(t.Context(), "wc:{q}:lane:t:gone")
			}
			return do()
		})
		time.Sleep(5 * time.Second)
		users := []string{}
		for _, a := range s.starts {
			users = append(users, a.user)
		}
		if slices.Sort(users); !both || !slices.Equal(users, []string{"gone", "there"}) {
			t.Errorf("started %v; they were taken together: %v", users, both)
		}
		for _, user := range users {
			if !s.server.Exists("wc:{q}:state:u:t:" + user) {
				t.Errorf("Redis does not know that %s had a start", user)
			}
		}
		if free := w.places.count(); free != w.places.all() {
			t.Errorf("%d of %d places are free, and nothing runs", free, w.places.all())
		}
		s.end()
	})
}

// What is to be told with commits that came to nothing is told later in the same order.
func TestOrdersKeepTheirOrder(t *testing.T) {
	term := &term{r: New(testConfig(t, nil, "w", nil, nil)), orders: []order{{worker: "third"}}}
	term.giveUp([]*bundle{{t: term, orders: []order{{worker: "first"}}}, {t: term, orders: []order{{worker: "second"}}}})
	var told []string
	for _, o := range term.orders {
		told = append(told, o.worker)
	}
	if !slices.Equal(told, []string{"first", "second", "third"}) {
		t.Errorf("told: %v", told)
	}
}

// A worker that has left since the leader looked is given nothing: nobody would take it back.
func TestAWorkerThatHasLeftGetsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.policies.Policies["p"] = schedule.Policy{}
		s.handler = func(string, Attempt) Outcome { time.Sleep(time.Second); return Outcome{} }
		s.hire(2)
		time.Sleep(5500 * time.Millisecond) // the leader has looked, and will again
		goOn := func() {}
		for _, w := range s.workers {
			if w != s.leader() {
				goOn = w.wire.hold()
				s.server.ZRem("wc:{q}:workers", w.cfg.Worker)
			}
		}
		for i := range 20 {
			s.offer(fmt.Sprint("u", i), 1)
		}
		time.Sleep(30 * time.Second)
		if n := s.attempts(); n != 20 {
			t.Errorf("%d of 20 jobs have started", n)
		}
		goOn()
		s.end()
	})
}

// Offers tell nobody while no lease holds: a leader that goes on reads everything again.
func TestALeaderGoesOnAfterItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1)
		s.handler = func(string, Attempt) Outcome { return Outcome{} }
		time.Sleep(2 * time.Second)
		token := s.server.HGet("wc:{q}:meta", "leader")
		goOn := s.leader().wire.hold()
		time.Sleep(2 * aloneLease)
		s.offer("u", 3)
		goOn()
		time.Sleep(2 * time.Second)
		if n := s.attempts(); n != 3 || s.server.HGet("wc:{q}:meta", "leader") != token {
			t.Errorf("%d of 3 jobs have started; the leader was %s, and is %s", n, token, s.server.HGet("wc:{q}:meta", "leader"))
		}
		s.end()
	})
}
