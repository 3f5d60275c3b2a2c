package main

import (
	"fmt"
	"time"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// speed is how much faster time passes here than in the schools: a minute of theirs
// takes three seconds. Every limit below is written as the schools know it and runs
// that much faster.
const speed = 20

// here turns a time span of the schools into one of this program.
func here(d time.Duration) time.Duration { return d / speed }

// A school is a tenant: it has a leak rate, a backlog and users.
type school struct {
	name     string
	about    string
	perMin   int           // leak rate, per minute of school time
	capacity int           // most that may wait, 0 for no bound
	maxWait  time.Duration // what has waited longer is not worth sending, school time
}

func schools() []school {
	return []school{
		{name: "oak", about: "2,000 families", perMin: 240},
		{name: "birch", about: "a chatty one", perMin: 90},
		{name: "cedar", about: "the smallest plan", perMin: 30, capacity: 120, maxWait: 2 * time.Minute},
	}
}

// leak is the school's own limit: so many starts a minute, evenly spaced, and nothing
// saved up in quiet times.
func (s school) leak() throttle.Rule { return throttle.Leak(s.perSecond(), time.Second) }

// everyUser are the limits of each teacher and each parent, in every school.
func everyUser() []limit {
	return []limit{
		{"10 in any minute", time.Minute, throttle.Window(10, here(time.Minute))},
		{"3 s between two", 0, throttle.Spacing(here(3 * time.Second))},
		{"50 in any 24 h, more are dropped", 24 * time.Hour, throttle.Window(50, here(24*time.Hour)).OrDrop()},
	}
}

// A limit is a rule as the schools say it, and as it runs here.
type limit struct {
	says   string
	window time.Duration // school time; 0 for a spacing
	rule   throttle.Rule
}

func rulesOf(limits []limit) []throttle.Rule {
	rules := make([]throttle.Rule, len(limits))
	for i, l := range limits {
		rules[i] = l.rule
	}
	return rules
}

// share is how much of all places the jobs of one school may hold at once: a provider that
// answers slowly leaves the others theirs.
var share = queue.Concurrency{Percent: 50}

// policies are all these limits in the form in which a queue obeys them.
func policies(schools []school) queue.Policies {
	p := queue.Policies{Policies: map[string]queue.Policy{}, Tenants: map[string]string{}}
	for _, s := range schools {
		p.Tenants[s.name] = s.name
		p.Policies[s.name] = queue.Policy{
			Tenant: []throttle.Rule{s.leak()}, TenantConcurrency: share,
			User:     rulesOf(everyUser()),
			Capacity: s.capacity,
			MaxWait:  here(s.maxWait),
		}
	}
	moments(&p)
	return p
}

// perSecond is the school's leak rate here.
func (s school) perSecond() int { return s.perMin * speed / 60 }

// terms describes the school's limits in a line.
func (s school) terms() string {
	text := fmt.Sprintf("%d a minute → %d/s", s.perMin, s.perSecond())
	if s.capacity > 0 {
		text += fmt.Sprintf("; at most %d wait", s.capacity)
	}
	if s.maxWait > 0 {
		text += fmt.Sprintf("; none longer than %g min → %g s", s.maxWait.Minutes(), here(s.maxWait).Seconds())
	}
	return text
}
