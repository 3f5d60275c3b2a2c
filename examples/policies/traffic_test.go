package policies

import (
	"fmt"
	"maps"
	"time"

	"github.com/waterclock/waterclock/queue"
)

// A call is offered so long after the begin.
type call struct {
	after time.Duration
	job   queue.Job
	noisy bool          // more than its limits let through
	takes time.Duration // to run
}

// A caller makes calls that are alike.
type caller struct {
	tenant, user, typ string // of whom nothing is said: acme, ann, call
	keys              map[string]string
	costs             map[string]int
	from              time.Duration // when the first call is offered
	takes             time.Duration
}

func (c caller) call(after time.Duration, noisy bool) call {
	job := queue.Job{Tenant: "acme", User: "ann", Type: "call", Keys: maps.Clone(c.keys), Costs: maps.Clone(c.costs)}
	for field, text := range map[*string]string{&job.Tenant: c.tenant, &job.User: c.user, &job.Type: c.typ} {
		if text != "" {
			*field = text
		}
	}
	return call{c.from + after, job, noisy, c.takes}
}

// floods offers n noisy calls at once.
func (c caller) floods(n int) (calls []call) {
	for range n {
		calls = append(calls, c.call(0, true))
	}
	return calls
}

// calmly offers n calls, one in each period.
func (c caller) calmly(n int, period time.Duration) (calls []call) {
	for i := range n {
		calls = append(calls, c.call(time.Duration(i)*period, false))
	}
	return calls
}

// users are the same caller as so many users.
func (c caller) users(n int, each func(caller) []call) (calls []call) {
	for i := range n {
		as := c
		as.user = fmt.Sprint(c.user, "-", i)
		calls = append(calls, each(as)...)
	}
	return calls
}

// tenants are the same caller as so many tenants.
func (c caller) tenants(n int, each func(caller) []call) (calls []call) {
	for i := range n {
		as := c
		as.tenant = fmt.Sprint(c.tenant, "-", i)
		calls = append(calls, each(as)...)
	}
	return calls
}

// flood is what each of many callers does.
func flood(n int) func(caller) []call { return func(c caller) []call { return c.floods(n) } }

// key makes the keys of a job from names and values.
func key(pairs ...string) map[string]string {
	keys := make(map[string]string)
	for i := 0; i < len(pairs); i += 2 {
		keys[pairs[i]] = pairs[i+1]
	}
	return keys
}

// costing is what a job costs in one unit.
func costing(unit string, n int) map[string]int { return map[string]int{unit: n} }

// all joins traffic, and gives each call an ID.
func all(parts ...[]call) (calls []call) {
	for _, part := range parts {
		calls = append(calls, part...)
	}
	for i := range calls {
		calls[i].job.ID = fmt.Sprint("call-", i)
	}
	return calls
}
