package faults

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// threeByName are limits by name beside those of the queue, the tenants and the users. Each of them binds some of the time. The
// textbook below has its own numbers.
var threeByName = map[string]queue.Limit{
	"bulk": {
		Types: []string{"bulk_*"}, Key: []string{"tenant", "user"}, Counts: "jobs",
		Rules: []throttle.Rule{throttle.Window(3, 2*time.Second)},
	},
	"domain": {
		Key: []string{"keys.domain"}, Counts: "jobs",
		Rules: []throttle.Rule{throttle.Leak(80, time.Second)}, Concurrency: queue.Concurrency{Jobs: 8},
	},
	"tokens": {
		Key: []string{"tenant"}, Counts: "tokens",
		Rules: []throttle.Rule{throttle.TokenBucket(1900, time.Second, 200)},
	},
}

// subjectByName makes the k-th job subject to some of the limits by name, or to none. The jobs of a user are subject to the same
// ones, and cost different numbers of tokens.
func subjectByName(j *queue.Job, k, user int) {
	if user%3 == 0 {
		j.Type = "bulk_mail"
	}
	if user%5 > 0 {
		j.Keys = map[string]string{"domain": []string{"a.example", "b.example"}[user%2]}
	}
	if user%7 > 0 {
		j.Costs = map[string]int{"tokens": 10 * (2 + k%6)}
	}
}

// byName kills workers and, between them, Redis.
func byName(t *testing.T) *scene {
	server, at := plain(t, durable...)
	at.named = true
	at.longer = 5 * time.Second // a job that comes back also waits for its domain, of whose places the dead hold some
	s := newScene(t, at)
	s.during(func() {
		for range 3 * s.rounds {
			for range 3 {
				s.pause(s.between(100*time.Millisecond, 700*time.Millisecond))
				victim := s.anyone()
				s.harm = append(s.harm, harm{worker: victim.name, at: s.kill(victim)})
				s.hire()
			}
			s.outage(time.Second, server.Kill, server.Resume)
		}
		s.crew.wait()
	})
	return s
}

// brokenByName counts the executions that broke a limit by name.
func (s *scene) brokenByName(executions []*execution) (found int) {
	if !s.named {
		return 0
	}
	users, domains, tenants := make(map[string][]*execution), make(map[string][]*execution), make(map[string][]*execution)
	for _, e := range executions {
		if e.Type == "bulk_mail" {
			users[e.Tenant+"/"+e.User] = append(users[e.Tenant+"/"+e.User], e)
		}
		if domain := e.Keys["domain"]; domain != "" {
			domains[domain] = append(domains[domain], e)
		}
		if e.Costs["tokens"] > 0 {
			tenants[e.Tenant] = append(tenants[e.Tenant], e)
		}
	}
	one := func(*execution) int { return 1 }
	for user, all := range users {
		found += s.count("bulk of "+user, s.tooMany(all, 3, 2*time.Second))
	}
	for domain, all := range domains {
		found += s.count("domain "+domain, append(overflows(all, 1, 80, one), s.tooManyAtOnce(all, 8)...))
	}
	for tenant, all := range tenants {
		found += s.count("tokens of "+tenant, overflows(all, 200, 1900, func(e *execution) int { return e.Costs["tokens"] }))
	}
	s.bound(users, domains, tenants)
	return found
}

// count tells of what broke a limit, and returns how much it is.
func (s *scene) count(limit string, broken []string) int {
	for _, b := range broken[:min(len(broken), 3)] {
		s.t.Errorf("limit %s: %s", limit, b)
	}
	return len(broken)
}

// bound fails the test where a limit was not used up by anybody: then it was not tested.
func (s *scene) bound(users, domains, tenants map[string][]*execution) {
	used := func(name string, groups map[string][]*execution, stricter func([]*execution) []string) {
		for _, all := range groups {
			if len(stricter(all)) > 0 {
				return
			}
		}
		s.t.Errorf("limit %s has not bound", name)
	}
	used("bulk", users, func(all []*execution) []string { return s.tooMany(all, 2, 2*time.Second) })
	used("domain", domains, func(all []*execution) []string {
		return overflows(all, 1, 76, func(*execution) int { return 1 })
	})
	used("domain, at once", domains, func(all []*execution) []string { return s.tooManyAtOnce(all, 7) })
	used("tokens", tenants, func(all []*execution) []string {
		return overflows(all, 180, 1900, func(e *execution) int { return e.Costs["tokens"] })
	})
}

// tooMany finds more than so many starts within a period: by the clock of Redis, and by the machine's.
func (s *scene) tooMany(all []*execution, most int, period time.Duration) (broken []string) {
	byRedis := slices.SortedFunc(slices.Values(all), func(a, b *execution) int { return a.Started.Compare(b.Started) })
	for i := most; i < len(byRedis); i++ {
		if first, last := byRedis[i-most], byRedis[i]; last.Started.Sub(first.Started) < period {
			broken = append(broken, fmt.Sprintf("%d starts from %s at %s to %s at %s", most+1, first.ID, clock(first.Started), last.ID, clock(last.Started)))
		}
	}
	awake := slices.DeleteFunc(slices.Clone(all), s.frozen)
	for i := most; i < len(awake); i++ {
		if first, last := awake[i-most], awake[i]; last.began.Sub(s.early(first)) < period {
			broken = append(broken, fmt.Sprintf("by the machine's clock %d starts from %s at %s to %s at %s", most+1, first.ID, clock(first.began), last.ID, clock(last.began)))
		}
	}
	return broken
}

// overflows finds slots at which a bucket of a size overflows that runs out at so much a second.
func overflows(all []*execution, size, rate float64, cost func(*execution) int) (broken []string) {
	bySlot := slices.SortedFunc(slices.Values(all), func(a, b *execution) int { return a.Slot.Compare(b.Slot) })
	level := 0.0
	for i, e := range bySlot {
		if i > 0 {
			level = max(0, level-rate*e.Slot.Sub(bySlot[i-1].Slot).Seconds())
		}
		const microsecond = 1e-6 // instants are whole ones
		if level += float64(cost(e)); level > size+rate*microsecond {
			broken = append(broken, fmt.Sprintf("%.3f of %v are used with %s at %s", level, size, e.ID, clock(e.Slot)))
			level = size
		}
	}
	return broken
}

// tooManyAtOnce finds executions that began while so many others ran.
func (s *scene) tooManyAtOnce(all []*execution, most int) (broken []string) {
	var ends []time.Time // of those that run
	for _, e := range all {
		if s.frozen(e) {
			continue
		}
		ends = slices.DeleteFunc(ends, func(end time.Time) bool { return !end.After(e.began) })
		if ends = append(ends, s.until(e)); len(ends) > most {
			broken = append(broken, fmt.Sprintf("%d run when %s began at %s", len(ends), e.ID, clock(e.began)))
		}
	}
	return broken
}
