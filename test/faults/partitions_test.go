package faults

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// A queue that is divided has the rules of the queue as a whole, which its partitions share: a leak and a window. The window lets
// less start in the long run, and the leak in between. Offers are more than both allow. The textbooks of the judge are those of the
// limits by name.
type whole struct {
	leak   int // a second
	window int // in wholePeriod
}

const wholePeriod = 2 * time.Second

var (
	onOne     = whole{leak: 130, window: 250}
	onCluster = whole{leak: 80, window: 150}
)

func (w whole) rules() []throttle.Rule {
	return []throttle.Rule{throttle.Leak(w.leak, time.Second), throttle.Window(w.window, wholePeriod)}
}

// rate is how many starts a second both let there be.
func (w whole) rate() float64 {
	return min(float64(w.leak), float64(w.window)/wholePeriod.Seconds())
}

// divided kills workers of a queue of four partitions, some of them at once, changes its policies, and kills Redis.
func divided(t *testing.T) *scene {
	server, at := plain(t, durable...)
	at.parts, at.queue, at.leak, at.among, at.hands, at.places, at.each = 4, onOne.rules(), 30, 12, 4, 12, 16
	at.longer = 15 * time.Second // a job that comes back waits for the rules of the queue, and others came before it
	s := newScene(t, at)
	s.during(func() {
		for range 2 * s.rounds {
			begin := time.Now()
			s.killSome(4, 600*time.Millisecond)
			s.used = append(s.used, span{begin, time.Now()}) // then half of the workers die at once
			s.killTwo()
			s.changePolicies()
			s.pause(time.Second)
			s.outage(time.Second, server.Kill, server.Resume)
		}
		s.crew.wait()
	})
	return s
}

// spoiltMembers freezes workers of a queue of four partitions, one after the other, and spoils what the whole queue knows of its workers:
// that is deleted, has workers who never lived, wishes that nobody has, and another type.
func spoiltMembers(t *testing.T) *scene {
	_, at := plain(t, durable...)
	at.parts, at.queue, at.leak, at.among, at.hands, at.places, at.each = 4, onOne.rules(), 30, 12, 6, 12, 16
	at.longer = 15 * time.Second
	s := newScene(t, at)
	workers, wanted := "wc:{"+queueName+"}:workers", "wc:{"+queueName+"}:wanted"
	s.during(func() {
		s.pause(2 * time.Second)
		begin, ctx := time.Now(), t.Context()
		for k := range 6 * s.rounds {
			s.freeze(s.anyone(), s.between(lease/4, lease+lease/3))
			ghost := func(lease time.Duration) redis.Z {
				return redis.Z{Member: fmt.Sprint("ghost-", k, lease), Score: float64(time.Now().Add(lease).UnixMicro())}
			}
			s.check(s.client.Del(ctx, workers).Err())
			s.check(s.client.ZAdd(ctx, workers, ghost(time.Hour), ghost(30*time.Second)).Err())
			s.check(s.client.Del(ctx, wanted).Err())
			s.check(s.client.HSet(ctx, wanted, "0", "99999999999999999999 99999999999999999999", "-3", "x", "1", "-5 1").Err())
			s.pause(500 * time.Millisecond)
			s.check(s.client.Set(ctx, wanted, "of another type", 0).Err())
			s.pause(300 * time.Millisecond)
			s.check(s.client.Del(ctx, wanted).Err())
		}
		s.used = append(s.used, span{begin, time.Now()})
		s.crew.wait()
	})
	return s
}

// check fails the test if something could not be done.
func (s *scene) check(err error) {
	if err != nil {
		s.t.Error(err)
	}
}

// changePolicies puts other policies in force that allow everybody as much.
func (s *scene) changePolicies() {
	p := s.policies()
	p.Tenants = map[string]string{fmt.Sprint("nobody-", len(s.harm)): "all"}
	if err := s.inspectors[0].SetPolicies(s.t.Context(), p); err != nil {
		s.t.Error(err)
	}
}

// killTwo kills two workers at once, one of which leads somewhere.
func (s *scene) killTwo() {
	for range 2 {
		victim := s.leader()
		if victim == nil {
			victim = s.anyone()
		}
		s.harm = append(s.harm, harm{worker: victim.name, at: s.kill(victim)})
	}
	s.hire()
	s.hire()
}

// dividedCluster kills workers that lead in partitions of a queue, moves slots of partitions and of the shared limits to other
// masters, and kills a master, whose replica takes over. Offers wait for a replica.
//
// In a cluster the shared limits are in one slot. What was spent in the last moments of the master that has it may be spent again
// after a failover: replication is asynchronous. The judge allows for that, and only there.
func dividedCluster(t *testing.T) *scene {
	cluster := redistest.StartNodes(t, 3, durable...)
	for _, master := range cluster.Nodes {
		cluster.StartReplica(t, master, durable...)
	}
	at := on(cluster.URL(), cluster.Client(t))
	at.durable, at.servers = queue.Durability{Replicas: 1}, true
	at.parts, at.queue, at.leak, at.among, at.each = 8, onCluster.rules(), 30, 24, 10
	at.longer = 15 * time.Second
	s := newScene(t, at)
	s.during(func() {
		for range s.rounds {
			acts := []func(){s.killLeader, s.killLeader, s.killLeader, func() { s.moveSome(cluster) }, func() { s.moveSome(cluster) }}
			s.rng.Shuffle(len(acts), func(i, j int) { acts[i], acts[j] = acts[j], acts[i] })
			for _, act := range acts {
				s.pause(s.between(200*time.Millisecond, time.Second))
				act()
			}
		}
		s.pause(time.Second) // what was moved is on the replicas, and all nodes know who has it
		s.failOver(cluster)
		s.crew.wait()
	})
	return s
}

// killLeader kills a worker that leads in some partition.
func (s *scene) killLeader() {
	victim := s.leader()
	if victim == nil {
		victim = s.anyone()
	}
	s.harm = append(s.harm, harm{worker: victim.name, at: s.kill(victim)})
	s.hire()
}

// moveSome moves the slot of a partition, or one time in three that of the shared limits, to another master.
func (s *scene) moveSome(cluster *redistest.Cluster) {
	key := limitsKey
	if s.rng.IntN(3) > 0 {
		key = partKey(s.rng.IntN(s.parts))
	}
	begin, owner := time.Now(), cluster.Owner(s.t, key)
	i := slices.Index(cluster.Nodes, owner)
	other := cluster.Nodes[(i+1+s.rng.IntN(len(cluster.Nodes)-1))%len(cluster.Nodes)]
	move(s.t, s.client.ClusterKeySlot(s.t.Context(), key).Val(), owner, other)
	s.t.Logf("the slot of %s has moved in %v", key, time.Since(begin).Round(time.Millisecond))
	s.harm = append(s.harm, harm{at: begin, healed: time.Now()})
}

// failOver kills a master, and a worker at about the same time, and waits until everything that the master had is with its replica.
func (s *scene) failOver(cluster *redistest.Cluster) {
	master := cluster.Nodes[s.rng.IntN(len(cluster.Nodes))]
	h := harm{forgets: true, tenants: make(map[string]bool)}
	keys := make(map[string]bool)
	for k := range s.tenants() {
		tenant := fmt.Sprint(queueName, "-", k)
		key := partKey(partOf(tenant, s.parts))
		if cluster.Owner(s.t, key).Addr == master.Addr {
			h.tenants[tenant], keys[key] = true, true
		}
	}
	if h.limits = cluster.Owner(s.t, limitsKey).Addr == master.Addr; h.limits {
		keys[limitsKey] = true
	}
	s.pause(s.between(100*time.Millisecond, time.Second))
	h.at = time.Now()
	master.Kill()
	s.pause(s.between(0, time.Second))
	s.killLeader()
	client := cluster.Client(s.t)
	redistest.Eventually(s.t, 30*time.Second, "replicas are masters", func() bool {
		for key := range keys {
			now, err := client.MasterForKey(s.t.Context(), key)
			if err != nil || now.Options().Addr == master.Addr || now.Ping(s.t.Context()).Err() != nil {
				client.ReloadState(s.t.Context())
				return false
			}
		}
		return true
	})
	h.healed = time.Now()
	s.harm = append(s.harm, h)
	s.t.Logf("a master was replaced in %v that had %d tenants, and the shared limits: %v", h.healed.Sub(h.at).Round(time.Millisecond), len(h.tenants), h.limits)
	s.pause(lease)
	master.Resume() // it follows now
	s.pause(lease)
}

// limitsKey is what the keys of shared limits begin with.
const limitsKey = "wc:{:limits}"

// partKey is what the keys of a partition begin with.
func partKey(k int) string { return fmt.Sprintf("wc:{%s/%d}:", queueName, k) }

// partOf returns the partition of a tenant: the FNV-1a hash of its name, of 64 bits, modulo how many there are.
func partOf(tenant string, of int) int {
	hash := uint64(14695981039346656037)
	for _, b := range []byte(tenant) {
		hash = (hash ^ uint64(b)) * 1099511628211
	}
	return int(hash % uint64(of))
}

// dividedPlaces kills and freezes workers of a queue of four partitions, of which ten jobs run at once, changes its policies, and kills
// Redis.
func dividedPlaces(t *testing.T) *scene {
	server, at := plain(t, durable...)
	at.parts, at.atOnce, at.leak, at.among, at.hands, at.places, at.each = 4, 10, 60, 12, 4, 12, 16
	at.longer = 15 * time.Second
	s := newScene(t, at)
	s.during(func() {
		for range 2 * s.rounds {
			begin := time.Now()
			s.killSome(4, 600*time.Millisecond)
			s.used = append(s.used, span{begin, time.Now()})
			s.killTwo()
			s.changePolicies()
			s.freeze(s.anyone(), s.between(lease/4, lease+lease/3))
			s.pause(time.Second)
			s.outage(time.Second, server.Kill, server.Resume)
		}
		s.crew.wait()
	})
	return s
}

const (
	// doubtful is how much later the slots of a shared limit may be than it has decided where its clock is another server's.
	doubtful = 10 * time.Millisecond
	// farthest is how long after it was decided a start under shared limits may be, and some time more. Until a replica takes over,
	// twice as much passes.
	farthest = 1500 * time.Millisecond
)

// brokenTogether counts the executions that broke the rules of the queue as a whole, whose partitions know nothing of one another.
func (s *scene) brokenTogether(executions []*execution) (found int) {
	if s.parts == 0 {
		return 0
	}
	if s.atOnce > 0 {
		s.inParts(executions)
		return s.count("places of the queue", s.atOnceTogether(executions)) + s.count("places of a worker", s.tooManyPlaces(executions))
	}
	w, size := onOne, 1.0
	if s.servers {
		w = onCluster
		size += float64(w.leak) * doubtful.Seconds()
	}
	one := func(*execution) int { return 1 }
	for _, all := range s.remembered(executions) {
		found += s.count("leak of the queue", overflows(s.paidOnce(all), size, float64(w.leak), one))
		found += s.count("window of the queue", s.tooMany(all, w.window, wholePeriod))
	}
	if len(overflows(executions, size, float64(w.leak)*0.95, one)) == 0 {
		s.t.Error("the leak of the queue has not bound")
	}
	if len(s.tooMany(executions, w.window*9/10, wholePeriod)) == 0 {
		s.t.Error("the window of the queue has not bound")
	}
	s.inParts(executions)
	if len(s.used) > 0 {
		s.t.Logf("at least %d jobs waited meanwhile", s.leastWaiting(executions))
		s.checkUse("the rules of the queue", w.rate(), 0.5, executions, executions)
	}
	return found + s.count("places of a worker", s.tooManyPlaces(executions))
}

// atOnceTogether finds executions that began while as many of the queue ran as may, and says how many of the places were taken.
func (s *scene) atOnceTogether(executions []*execution) (broken []string) {
	byBegin := slices.SortedFunc(slices.Values(executions), func(a, b *execution) int { return a.began.Compare(b.began) })
	if len(s.tooManyAtOnce(byBegin, s.atOnce-1)) == 0 {
		s.t.Errorf("%d jobs have never run at once", s.atOnce)
	}
	for _, u := range s.used {
		taken := time.Duration(0)
		for _, e := range executions {
			if left := s.leaves(e); e.began.Before(u.to) && left.After(u.from) {
				taken += min(left.Sub(u.from), u.to.Sub(u.from), u.to.Sub(e.began), left.Sub(e.began))
			}
		}
		share := float64(taken) / float64(u.to.Sub(u.from)) / float64(s.atOnce)
		s.t.Logf("%.1f %% of the places of the queue were taken while workers were killed one by one", 100*share)
		if share < 0.5 { // jobs that killed workers were told of and have not begun hold places, too
			s.t.Errorf("%.1f %% of the places were taken", 100*share)
		}
	}
	return s.tooManyAtOnce(byBegin, s.atOnce)
}

// leaves returns when an execution leaves its place: when it ends, or when the lease of its worker does that was killed. Where nobody could
// renew a lease meanwhile, all begin again.
func (s *scene) leaves(e *execution) time.Time {
	for _, h := range s.harm {
		if h.worker != e.worker || !s.until(e).Equal(h.at) {
			continue
		}
		ends := h.at.Add(lease)
		for _, of := range s.harm {
			if of.worker == "" && of.at.Before(ends) && of.healed.After(h.at) {
				ends = of.healed.Add(lease)
			}
		}
		return ends
	}
	return s.until(e)
}

// remembered divides executions where the Redis that has the shared limits may have forgotten what was spent. Nothing starts from
// farthest after it was killed until another one has taken over: what starts then nobody has decided.
func (s *scene) remembered(executions []*execution) (all [][]*execution) {
	rest := executions
	for _, h := range s.harm {
		if !h.limits {
			continue
		}
		cut := h.at.Add(farthest)
		for _, e := range rest {
			if e.began.Add(-e.late).After(cut) && e.began.Before(cut.Add(farthest/4)) {
				s.t.Errorf("%s started at %s, %v after the shared limits were gone", e.ID, clock(e.began), e.began.Sub(h.at))
			}
		}
		var before, after []*execution
		for _, e := range rest {
			if e.Slot.Before(cut) {
				before = append(before, e)
			} else {
				after = append(after, e)
			}
		}
		all, rest = append(all, before), after
	}
	return append(all, rest)
}

// paidOnce leaves out of executions those that came back with the slot that they had before Redis forgot their start.
func (s *scene) paidOnce(executions []*execution) (all []*execution) {
	paid := make(map[string]bool)
	for _, e := range executions {
		slot := fmt.Sprint(e.ID, e.Slot)
		if !paid[slot] || !s.forgets() {
			all = append(all, e)
		}
		paid[slot] = true
	}
	return all
}

// inParts fails the test where a partition has started nothing, and says how much each has.
func (s *scene) inParts(executions []*execution) {
	started := make([]int, s.parts)
	for _, e := range executions {
		started[partOf(e.Tenant, s.parts)]++
	}
	if slices.Min(started) == 0 {
		s.t.Error("a partition has started nothing")
	}
	s.t.Logf("starts of each partition: %v", started)
}

// leastWaiting returns how many jobs have waited at least, while a limit should have been used up, of those that have started later.
func (s *scene) leastWaiting(executions []*execution) int {
	type event struct {
		at time.Time
		by int
	}
	var events []event
	seen := make(map[string]bool)
	for _, e := range executions {
		if a, accepted := s.accepted[e.ID]; accepted && !seen[e.ID] {
			events = append(events, event{a.came, 1}, event{e.began, -1})
		}
		seen[e.ID] = true
	}
	slices.SortFunc(events, func(a, b event) int { return a.at.Compare(b.at) })
	n, least := 0, len(events)
	for _, e := range events {
		n += e.by
		if slices.ContainsFunc(s.used, func(u span) bool { return u.holds(e.at) }) {
			least = min(least, n)
		}
	}
	return least
}

// tooManyPlaces finds executions that a worker ran beside as many as it has places. All partitions take theirs from these.
func (s *scene) tooManyPlaces(executions []*execution) (broken []string) {
	if s.places == 0 {
		return nil
	}
	workers := make(map[string][]*execution)
	for _, e := range executions {
		workers[e.worker] = append(workers[e.worker], e)
	}
	for worker, all := range workers {
		var ends []time.Time
		for _, e := range all {
			ends = slices.DeleteFunc(ends, func(end time.Time) bool { return !end.IsZero() && !end.After(e.began) })
			if ends = append(ends, e.ended); len(ends) > s.places {
				broken = append(broken, fmt.Sprintf("%s runs %d when %s began at %s", worker, len(ends), e.ID, clock(e.began)))
			}
		}
	}
	return broken
}
