package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// An Explanation says why the jobs of a user wait. All times are on Redis's clock.
type Explanation struct {
	Now           time.Time
	Policy        string // the tenant's policy; empty if it has none
	TenantWaiting int64  // jobs in the tenant's bucket
	Waiting       int64  // of these, in the user's lanes

	// Start is when the user's next job may start; the zero time if none waits. Other
	// users of the tenant whose turn comes first may delay it further.
	Start time.Time

	// Binding is what the next job waits for: the rule or the pause that lets it start
	// last. nil if it may start now, or if none waits.
	Binding *RuleState

	// Rules are all rules that count for the user, and pauses as rules named "paused".
	Rules []RuleState
}

// RuleState is what one rule says about a user's next job.
type RuleState struct {
	Scope     string    // "queue", "tenant" or "user"
	Rule      string    // as in the policy, "window 10/1m"
	When      time.Time // the earliest start that it allows
	Limit     int       // the most it lets start at once
	Remaining int       // how many more it would let start now
	Drops     bool      // it drops rather than defers
	Shadow    bool      // it is only watched
}

// Explain says why the jobs of a tenant's user wait, and until when.
func (i *Inspector) Explain(ctx context.Context, tenant, user string) (Explanation, error) {
	reply, err := i.scripts.run(ctx, i.scripts.explain, escape(tenant), escape(user)).Slice()
	if err != nil {
		return Explanation{}, fmt.Errorf("explaining in queue %q: %w", i.queue, err)
	}
	return readExplanation(reply)
}

// explainFields is how many fields of a reply stand before the rules.
const explainFields = 9

func readExplanation(reply []any) (Explanation, error) {
	if len(reply) < explainFields {
		return Explanation{}, fmt.Errorf("queue: malformed explanation of %d fields", len(reply))
	}
	number := func(v any) int64 { n, _ := v.(int64); return n }
	policy, _ := reply[5].(string)
	e := Explanation{
		Now: time.UnixMicro(number(reply[0])), TenantWaiting: number(reply[1]), Waiting: number(reply[2]), Policy: policy,
	}
	for k, scope := range []string{"queue", "tenant", "user"} {
		if until := number(reply[6+k]); until > number(reply[0]) {
			e.Rules = append(e.Rules, RuleState{Scope: scope, Rule: "paused", When: time.UnixMicro(until), Limit: 1})
		}
	}
	for _, item := range reply[explainFields:] {
		f, ok := item.([]any)
		if !ok || len(f) < 7 {
			return Explanation{}, fmt.Errorf("queue: malformed rule %v in an explanation", item)
		}
		scope, _ := f[0].(string)
		rule, _ := f[1].(string)
		e.Rules = append(e.Rules, RuleState{
			Scope: scope, Rule: rule, When: time.UnixMicro(number(f[2])),
			Limit: int(number(f[3])), Remaining: int(number(f[4])), Drops: number(f[5]) == 1, Shadow: number(f[6]) == 1,
		})
	}
	if start := number(reply[3]); start > 0 {
		e.Start = time.UnixMicro(start)
		e.Binding = binding(e)
	}
	return e, nil
}

// binding returns the rule or pause that lets the next job start last, if that is not now.
func binding(e Explanation) (last *RuleState) {
	for k := range e.Rules {
		r := &e.Rules[k]
		if r.Shadow || r.Drops || !r.When.After(e.Now) {
			continue
		}
		if last == nil || r.When.After(last.When) {
			last = r
		}
	}
	return last
}

// A WaitingJob is a job in its lane.
type WaitingJob struct {
	Job
	Place   int // in line among the user's jobs of its priority; 1 is next
	Offered time.Time
	Attempt int // what its next execution will be
}

// Lane returns the waiting jobs of a user in their order, from the given place on (0 is
// the first), at most n of each priority.
func (i *Inspector) Lane(ctx context.Context, tenant, user string, from, n int) ([]WaitingJob, error) {
	lane := escape(tenant) + ":" + escape(user)
	var jobs []WaitingJob
	for _, suffix := range []string{":high", "", ":low"} {
		entries, err := i.client.LRange(ctx, prefix(i.queue)+"lane:"+lane+suffix, int64(from), int64(from+n-1)).Result()
		if err != nil {
			return nil, fmt.Errorf("inspecting queue %q: %w", i.queue, err)
		}
		for k, entry := range entries {
			e, ok, err := i.open(ctx, lane, entry)
			if err != nil {
				return nil, err
			}
			if ok {
				jobs = append(jobs, WaitingJob{e.job, from + k + 1, e.offered, e.failures + 1})
			}
		}
	}
	return jobs, nil
}

// open reads an entry of a lane; not ok if it left while we looked.
func (i *Inspector) open(ctx context.Context, lane, entry string) (e envelope, ok bool, err error) {
	if fold, folded := strings.CutPrefix(entry, "="); folded {
		texts, err := i.client.HMGet(ctx, prefix(i.queue)+"fold:"+lane, fold).Result()
		if err != nil {
			return e, false, fmt.Errorf("inspecting queue %q: %w", i.queue, err)
		}
		if entry, ok = texts[0].(string); !ok {
			return e, false, nil
		}
	}
	e, err = openEnvelope(lane, entry)
	return e, err == nil, err
}

// JobState says where a job with the caller's own ID is.
type JobState struct {
	// State is "waiting", "started", "dropped", "dead" or "cancelled".
	State string

	Tenant, User string // of a waiting job

	// Place is the waiting job's place in its lane, or 0 if it is further back than
	// 10,000 or not yet in it (scheduled, or backing off).
	Place int

	Explanation // of its user, if it waits
}

// ExplainJob says where a job with the caller's own ID is, and why it waits there; false
// if the ID is not known, or not any more (see [Job.ID]).
func (i *Inspector) ExplainJob(ctx context.Context, id string) (JobState, bool, error) {
	where, err := i.client.Get(ctx, prefix(i.queue)+"id:"+escape(id)).Result()
	if errors.Is(err, redis.Nil) {
		return JobState{}, false, nil
	}
	if err != nil {
		return JobState{}, false, fmt.Errorf("explaining a job of queue %q: %w", i.queue, err)
	}
	parts := strings.Split(where, ":")
	if len(parts) != 3 {
		return JobState{State: where}, true, nil
	}
	state := JobState{State: "waiting", Tenant: unescape(parts[0]), User: unescape(parts[1])}
	if state.Explanation, err = i.Explain(ctx, state.Tenant, state.User); err != nil {
		return JobState{}, false, err
	}
	state.Place, err = i.place(ctx, state.Tenant, state.User, id)
	return state, err == nil, err
}

// place looks for a job in its lanes, through a bounded part of them.
func (i *Inspector) place(ctx context.Context, tenant, user, id string) (int, error) {
	const step, most = 1000, 10_000
	for from := 0; from < most; from += step {
		jobs, err := i.Lane(ctx, tenant, user, from, step)
		if err != nil || len(jobs) == 0 {
			return 0, err
		}
		for _, job := range jobs {
			if job.ID == id {
				return job.Place, nil
			}
		}
	}
	return 0, nil
}
