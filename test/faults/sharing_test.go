package faults

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/waterclock/waterclock/throttle"
	"github.com/waterclock/waterclock/throttle/limits"
)

// What an account is shared by are two queues and somebody who has none. The queues alone are offered more than it allows.
const (
	accountRate   = 200 // a second
	accountPeriod = 2 * time.Second
	outsideRate   = accountRate / 3
	outside       = "outside"
	poolLimit     = 60 // of each tenant
)

// steady is how late a machine runs nine of ten jobs at most that has processors enough for the processes of this test. That is 1.4 ms where the
// test runs alone on two of them, and 3.4 to 5.5 beside six others.
const steady = 3 * time.Millisecond

// accountFile is the policy file of somebody outside.
const accountFile = "limits: {account: {shared: true, counts: jobs, rules: [{%s}]}}"

// underAccount kills workers of two queues that share a limit and, between them, Redis.
func underAccount(t *testing.T) *scene {
	server, at := plain(t, durable...)
	at.account, at.pooled = throttle.Window(accountRate*9/5, accountPeriod), true
	return sharing(t, at, func(s *scene) {
		for range 2 * s.rounds {
			s.killSome(3, 100*time.Millisecond)
			s.outage(time.Second, server.Kill, server.Resume)
		}
	})
}

// usedAccount kills workers, each of which works for one of the queues. What one cannot use the others do.
func usedAccount(t *testing.T) *scene {
	_, at := plain(t)
	at.account, at.apart, at.hands, at.among = throttle.Leak(accountRate, time.Second), true, 6, 6
	return sharing(t, at, func(s *scene) {
		begin := time.Now()
		s.killSome(6*s.rounds, time.Second)
		s.used = append(s.used, span{begin, time.Now()})
	})
}

// sharing lets somebody outside use the limit, too, while harm is done.
func sharing(t *testing.T, at stage, harm func(*scene)) *scene {
	at.beside = []string{"mail"}
	at.longer = 15 * time.Second // a job that comes back waits for the limit, and others came before it
	s := newScene(t, at)
	s.during(func() {
		ctx, stop := context.WithCancel(t.Context())
		var caller sync.WaitGroup
		caller.Go(func() { s.callOutside(ctx) })
		s.pause(500 * time.Millisecond)
		harm(s)
		stop()
		caller.Wait()
		s.crew.wait()
	})
	return s
}

// killSome kills workers, one after the other with some time between, and hires others.
func (s *scene) killSome(n int, least time.Duration) {
	for range n {
		s.pause(s.between(least, least+600*time.Millisecond))
		victim := s.anyone()
		s.harm = append(s.harm, harm{worker: victim.name, at: s.kill(victim)})
		s.hire()
	}
}

// callOutside acquires the limit as programs without a queue do, and notes when it has.
func (s *scene) callOutside(ctx context.Context) {
	limiter := throttle.New(throttle.NewRedisStore(s.client, limits.SharedKeys))
	set, err := limits.Parse("limits.yaml", fmt.Appendf(nil, accountFile, ruleText(s.account)), limiter)
	if err != nil {
		s.t.Error(err)
		return
	}
	for next := time.Now(); ctx.Err() == nil; next = next.Add(time.Second / outsideRate) {
		s.pause(time.Until(next))
		d, err := set.Acquire(ctx, "account", limits.Fields{}, time.Second)
		if err != nil || d.Outcome != throttle.Admitted {
			next = time.Now()
			s.pause(10 * time.Millisecond)
			continue
		}
		now := time.Now()
		s.outside = append(s.outside, &execution{start: start{ID: outside, Slot: d.Slot, Started: now}, worker: outside, began: now, ended: now})
	}
}

// ruleText is a rule as a policy file has it.
func ruleText(r throttle.Rule) string {
	if r.Kind() == throttle.KindLeak {
		return fmt.Sprintf("leak: %d/%v", r.Limit(), r.Period())
	}
	return fmt.Sprintf("window: %d/%v", r.Limit(), r.Period())
}

// brokenAccount counts the executions that broke the limit which queues share with somebody outside.
func (s *scene) brokenAccount(executions []*execution) int {
	if s.account == (throttle.Rule{}) {
		return 0
	}
	all := slices.Concat(executions, s.outside)
	slices.SortStableFunc(all, func(a, b *execution) int { return a.began.Compare(b.began) })
	if len(s.outside) < 50 {
		s.t.Errorf("somebody outside has had the limit %d times", len(s.outside))
	}
	if s.account.Kind() == throttle.KindLeak {
		s.checkUse("the shared limit", accountRate, 0.98, executions, all)
		return s.count("account", overflows(all, 1, accountRate, func(*execution) int { return 1 }))
	}
	if len(s.tooMany(all, s.account.Limit()*9/10, accountPeriod)) == 0 {
		s.t.Error("the shared limit has not bound")
	}
	return s.count("account", s.tooMany(all, s.account.Limit(), accountPeriod)) + s.brokenPools(executions)
}

// brokenPools counts the executions that broke the shared limit of each tenant.
func (s *scene) brokenPools(executions []*execution) (found int) {
	tenants := make(map[string][]*execution)
	for _, e := range executions {
		tenants[e.Tenant] = append(tenants[e.Tenant], e)
	}
	bound := false
	for tenant, all := range tenants {
		found += s.count("pool of "+tenant, s.tooMany(all, poolLimit, accountPeriod))
		bound = bound || len(s.tooMany(all, poolLimit*9/10, accountPeriod)) > 0
	}
	if !bound {
		s.t.Error("no tenant's shared limit has bound")
	}
	return found
}

// checkUse fails the test where less than a part of a limit of so much a second was used while there was work for it.
func (s *scene) checkUse(limit string, rate, least float64, executions, all []*execution) {
	n, lasted := 0, time.Duration(0)
	for _, used := range s.used {
		lasted += used.to.Sub(used.from)
		for _, e := range all {
			if used.holds(e.began) {
				n++
			}
		}
	}
	late := make([]time.Duration, 0, len(executions))
	for _, e := range executions {
		late = append(late, e.late)
	}
	slices.Sort(late)
	part := float64(n) / (rate * lasted.Seconds())
	s.t.Logf("of %s %.1f %% were used in %v, %d times from outside", limit, 100*part, lasted.Round(time.Millisecond), len(s.outside))
	if most := late[len(late)*9/10].Round(time.Millisecond / 10); most > steady {
		s.t.Logf("the machine ran one in ten jobs %v late and more: grants are lost to processes that do not run in time", most)
		least = 0.3
	}
	if part < least {
		s.t.Errorf("%.1f %% of %s were used; want at least %.0f %%", 100*part, limit, 100*least)
	}
}
