package faults

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// many is a stage on which sixty tenants share what a rule of the queue lets start: two thirds of
// what is offered.
func many(t *testing.T) stage {
	_, at := plain(t)
	at.queue = []throttle.Rule{throttle.Leak(100, time.Second)}
	at.among, at.lively = 60, true
	return at
}

// stormed lets an operator act every 20 ms: pause and resume a tenant or a user, change policies,
// cancel a job, and purge a tenant now and then.
func stormed(t *testing.T) *scene {
	s := newScene(t, many(t))
	s.during(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for n := range 500 * s.rounds {
			<-tick.C
			if err := s.operate(n); err != nil {
				t.Error(err)
			}
		}
	})
	return s
}

// operate does one thing that an operator does.
func (s *scene) operate(n int) error {
	ctx, inspector := s.t.Context(), s.inspectors[0]
	tenant, user := fmt.Sprint(queueName, "-", s.rng.IntN(s.tenants())), fmt.Sprint("u", s.rng.IntN(users))
	now, err := s.client.Time(ctx).Result()
	if err != nil {
		return err
	}
	lasts := s.between(10*time.Millisecond, 200*time.Millisecond)
	switch s.rng.IntN(6) {
	case 0:
		begin := time.Now()
		err = inspector.Pause(ctx, queue.Pause{Scope: queue.ScopeTenant, Tenant: tenant, Until: now.Add(lasts)})
		s.held = append(s.held, hold{tenant, "", begin, time.Now().Add(lasts)})
	case 1:
		begin := time.Now()
		err = inspector.Pause(ctx, queue.Pause{Scope: queue.ScopeUser, Tenant: tenant, User: user, Until: now.Add(lasts)})
		s.held = append(s.held, hold{tenant, user, begin, time.Now().Add(lasts)})
	case 2:
		err = inspector.Resume(ctx, queue.Pause{Scope: queue.ScopeTenant, Tenant: tenant})
	case 3:
		err = inspector.Resume(ctx, queue.Pause{Scope: queue.ScopeUser, Tenant: tenant, User: user})
	case 4: // of others, who have nothing to do
		p := s.policies()
		p.Policies["others"] = queue.Policy{Tenant: []throttle.Rule{throttle.Leak(1+n, time.Second)}}
		p.Tenants = map[string]string{"nobody": "others"}
		err = inspector.SetPolicies(ctx, p)
	case 5:
		s.mu.Lock()
		id := fmt.Sprint("job-", max(0, s.offered-1-s.rng.IntN(1000)))
		s.mu.Unlock()
		if _, err = inspector.Cancel(ctx, id); err == nil && n%50 == 0 {
			_, err = inspector.Purge(ctx, tenant)
		}
	}
	return err
}

// outdated gives Redis the policies that it had before, as a failover does to a replica that has
// not got the newest ones.
func outdated(t *testing.T) *scene {
	_, at := plain(t)
	at.lively = true
	s := newScene(t, at)
	key := "wc:{" + queueName + "}:"
	s.during(func() {
		for range 2 * s.rounds {
			older, err := s.client.Dump(t.Context(), key+"policies").Result()
			if err != nil {
				t.Error(err)
			}
			version := s.client.HGet(t.Context(), key+"meta", "policies").Val()
			n, _ := strconv.Atoi(version)
			p := s.policies()
			p.Tenants = map[string]string{fmt.Sprint("nobody-", n): "all"}
			if err := s.inspectors[0].SetPolicies(t.Context(), p); err != nil {
				t.Error(err)
			}
			s.pause(lease) // everybody has heard of them
			begin := time.Now()
			_, err = s.client.TxPipelined(t.Context(), func(pipe redis.Pipeliner) error {
				pipe.RestoreReplace(t.Context(), key+"policies", 0, older)
				pipe.HSet(t.Context(), key+"meta", "policies", version)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			s.harm = append(s.harm, harm{at: begin, healed: begin})
			if victim := s.leader(); victim != nil { // the next one has heard of the newest, too
				s.harm = append(s.harm, harm{worker: victim.name, at: s.kill(victim)})
			}
			s.pause(lease)
			s.hire()
		}
		s.crew.wait()
	})
	return s
}

// shared lets one worker serve twelve queues by a client as go-redis makes it.
func shared(t *testing.T) *scene {
	server := redistest.Start(t)
	at := stage{url: server.URL(), client: server.Client(t), leak: slowly, slack: time.Second, lively: true, hands: 1}
	for i := range 11 {
		at.beside = append(at.beside, fmt.Sprint(queueName, "-", i))
	}
	s := newScene(t, at)
	s.during(func() {
		for range 3 * s.rounds {
			s.pause(s.between(time.Second, 2*time.Second))
			victim := s.anyone()
			s.harm = append(s.harm, harm{worker: victim.name, at: s.kill(victim)})
			s.hire()
		}
		s.crew.wait()
	})
	return s
}
