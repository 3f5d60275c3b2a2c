package api

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/doctor"
	"github.com/waterclock/waterclock/internal/human"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/access"
	"github.com/waterclock/waterclock/queue/watch"
)

// List is one page of a list.
type List[T any] struct {
	Items []T `json:"items"`
}

// listOf never leaves the items out.
func listOf[T any](items []T, err error) (List[T], error) {
	if items == nil {
		items = []T{}
	}
	return List[T]{items}, err
}

// part returns the part of all items that is asked for.
func part[T any](all []T, from, n int) []T { return all[min(from, len(all)):min(from+n, len(all))] }

// QueueHealth is the name of a queue and its condition.
type QueueHealth struct {
	Queue string `json:"queue"`
	watch.Health
}

func queues(c *call) (List[QueueHealth], error) {
	names := c.h.cfg.Queues
	if len(names) == 0 {
		var err error
		if names, err = watch.Queues(c.ctx, c.h.cfg.Redis); err != nil {
			return List[QueueHealth]{}, err
		}
	}
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !c.token.May(access.Read, name) })
	from, n := c.page()
	var all []QueueHealth
	for _, name := range part(names, from, n) {
		inspector, err := watch.New(c.h.cfg.Redis, name)
		if err != nil {
			return List[QueueHealth]{}, err
		}
		health, err := inspector.Health(c.ctx)
		if err != nil {
			return List[QueueHealth]{}, err
		}
		all = append(all, QueueHealth{name, health})
	}
	return listOf(all, nil)
}

// QueueState is the condition and the numbers of a queue.
type QueueState struct {
	Queue  string       `json:"queue"`
	Health watch.Health `json:"health"`
	Stats  queue.Stats  `json:"stats"`
}

func state(c *call) (s QueueState, err error) {
	s.Queue = c.queue
	if s.Health, err = c.inspector.Health(c.ctx); err == nil {
		s.Stats, err = c.inspector.Stats(c.ctx)
	}
	return s, err
}

func health(c *call) (watch.Health, error) { return c.inspector.Health(c.ctx) }

func findings(c *call) (List[doctor.Finding], error) {
	found, err := doctor.Queue(c.ctx, c.inspector)
	found = append(found, doctor.Inbox(c.ctx, c.h.cfg.Redis, c.queue))
	return listOf(append(doctor.Redis(c.ctx, c.h.cfg.Redis), found...), err)
}

func tenants(c *call) (List[queue.TenantStats], error) {
	from, n := c.page()
	if tenant := c.text("tenant"); tenant != "" {
		one, err := c.inspector.Tenant(c.ctx, tenant)
		return listOf([]queue.TenantStats{one}, err)
	}
	all, _, err := c.inspector.Tenants(c.ctx, from, n)
	return listOf(all, err)
}

func users(c *call) (List[queue.UserStats], error) {
	from, n := c.page()
	tenant := c.required("tenant")
	if c.bad != nil {
		return List[queue.UserStats]{}, c.bad
	}
	return listOf(c.inspector.Users(c.ctx, tenant, from, n))
}

// LaneJob is a waiting job in its lane.
type LaneJob struct {
	Place    int       `json:"place"` // in line among the user's jobs of its priority; 1 is next
	Priority string    `json:"priority"`
	ID       string    `json:"id"`
	Type     string    `json:"type"`
	Offered  time.Time `json:"offered"`
	Attempt  int       `json:"attempt"`         // what its next execution will be
	Error    string    `json:"error,omitempty"` // of its last attempt, if that failed
	Bytes    int       `json:"payload_bytes"`
}

func lane(c *call) (List[LaneJob], error) {
	from, n := c.page()
	tenant, user := c.required("tenant"), c.required("user")
	if c.bad != nil {
		return List[LaneJob]{}, c.bad
	}
	waiting, err := c.inspector.Lane(c.ctx, tenant, user, from, n)
	all := make([]LaneJob, len(waiting))
	for k, w := range waiting {
		all[k] = LaneJob{w.Place, w.Priority.String(), w.ID, w.Type, w.Offered, w.Attempt, w.Error, len(w.Payload)}
	}
	return listOf(all, err)
}

// why explains the next job of a user; without a name, of the user that is due first.
func why(c *call) (Why, error) {
	tenant, user := c.required("tenant"), c.text("user")
	if c.bad != nil {
		return Why{}, c.bad
	}
	if user == "" {
		first, err := c.inspector.Users(c.ctx, tenant, 0, 1)
		if err != nil {
			return Why{}, err
		}
		if len(first) > 0 {
			user = first[0].User
		}
	}
	e, err := c.inspector.Explain(c.ctx, tenant, user)
	return Why{tenant, user, human.Why(e, tenant, user), noRules(e)}, err
}

// Why explains why the next job of a user waits.
type Why struct {
	Tenant string `json:"tenant"`
	User   string `json:"user"` // empty if nothing of the tenant waits
	Text   string `json:"text"` // the answer, for people
	queue.Explanation
}

// noRules makes a list that is empty one that is there.
func noRules(e queue.Explanation) queue.Explanation {
	if e.Rules == nil {
		e.Rules = []queue.RuleState{}
	}
	return e
}

func job(c *call) (queue.JobState, error) {
	id := c.required("id")
	if c.bad != nil {
		return queue.JobState{}, c.bad
	}
	state, known, err := c.inspector.ExplainJob(c.ctx, id)
	if err == nil && !known {
		err = problemf(404, "no-such-job", "no job %q is known: only jobs with an ID of their own are, until a day after they have ended", clip(id))
	}
	state.Explanation = noRules(state.Explanation)
	return state, err
}

func running(c *call) (List[watch.RunningJob], error) {
	from, n := c.page()
	all, err := c.inspector.Running(c.ctx)
	return listOf(part(all, from, n), err)
}

func later(c *call) (List[queue.LaterJob], error) {
	from, n := c.page()
	return listOf(c.inspector.Later(c.ctx, from, n))
}

func retrying(c *call) (List[queue.LaterJob], error) {
	from, n := c.page()
	return listOf(c.inspector.Retrying(c.ctx, from, n))
}

func failures(c *call) (List[watch.FailureClass], error) {
	return listOf(c.inspector.Failures(c.ctx, 1000))
}

func drops(c *call) (List[queue.Drop], error) {
	from, n := c.page()
	tenant, reason := c.text("tenant"), c.text("reason")
	if reason != "" && !slices.Contains(reasons, queue.Reason(reason)) {
		c.refuse("reason", fmt.Sprintf("is %.40q", reason), fmt.Sprintf("want one of %s", strings.Trim(fmt.Sprint(reasons), "[]")))
		return List[queue.Drop]{}, c.bad
	}
	read := from + n
	if tenant != "" || reason != "" {
		read = filtered
	}
	all, err := c.inspector.Drops(c.ctx, read)
	all = slices.DeleteFunc(all, func(d queue.Drop) bool {
		return tenant != "" && d.Tenant != tenant || reason != "" && string(d.Reason) != reason
	})
	return listOf(part(all, from, n), err)
}

// reasons are those for which jobs are dropped.
var reasons = []queue.Reason{
	queue.ReasonFull, queue.ReasonRule, queue.ReasonExpired, queue.ReasonCollapsed, queue.ReasonImpossible, queue.ReasonCancelled,
	queue.ReasonPurged, queue.ReasonDuplicate, queue.ReasonBroken,
}

// filtered is how many records are looked through for those of a tenant: reading all that
// Redis keeps would hold up everybody else.
const filtered = 10_000

func dead(c *call) (List[queue.DeadJob], error) {
	from, n := c.page()
	tenant, read := c.text("tenant"), from+n
	if tenant != "" {
		read = filtered
	}
	all, err := c.inspector.Dead(c.ctx, "", read)
	all = slices.DeleteFunc(all, func(d queue.DeadJob) bool { return tenant != "" && d.Tenant != tenant })
	return listOf(part(all, from, n), err)
}

func workers(c *call) (List[watch.WorkerStats], error) { return listOf(c.inspector.Workers(c.ctx)) }

func pauses(c *call) (List[queue.Pause], error) { return listOf(c.inspector.Pauses(c.ctx)) }
