package simulate

import (
	"github.com/waterclock/waterclock/internal/limits"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// invalid returns why a job can never start.
func (w *memory) invalid(lane envelope.Lane, env *envelope.Envelope) (queue.Reason, string) {
	uses, _, invalid := w.policies.Job(lane, env)
	if invalid != nil && !w.Accepted {
		return Invalid, invalid.Error()
	}
	for _, limit := range uses {
		if rule := limit.Rules.Impossible(limit.Cost); rule >= 0 {
			return queue.ReasonImpossible, limit.RuleName(rule)
		}
	}
	return "", ""
}

// full returns why there is no room for a job. Where the oldest one is dropped for it, there is.
func (w *memory) full(lane envelope.Lane, env *envelope.Envelope) (queue.Reason, string) {
	full := false
	for _, limit := range w.policies.Uses(lane, env) {
		switch room := limit.Capacity == 0 || w.waiting[limit.Scope] < limit.Capacity; {
		case room:
		case limit.Name != limits.Tenant:
			return queue.ReasonFull, limit.CapacityName()
		case !w.policies.Of(lane.Tenant).DropOldest:
			return queue.ReasonFull, ""
		default:
			full = true
		}
	}
	if full {
		w.dropOldest(lane.Tenant)
	}
	return "", ""
}

// wait notes that so many more jobs wait that are as this one.
func (w *memory) wait(lane envelope.Lane, env *envelope.Envelope, n int) {
	for _, limit := range w.policies.Uses(lane, env) {
		if limit.Capacity > 0 {
			w.waiting[limit.Scope] += n
		}
	}
}

// dropOldest makes room in the backlog of a tenant.
func (w *memory) dropOldest(tenant string) {
	var oldest envelope.Lane
	found := ""
	for lane, heads := range w.lanes {
		if lane.Tenant == tenant && len(heads) > 0 && (found == "" || heads[0].Entry < found) {
			oldest, found = lane, heads[0].Entry
		}
	}
	if found != "" {
		w.drop(found, queue.ReasonFull, "")
		w.leave(oldest)
		w.sched.Step(w.now, schedule.Changed{Lane: oldest})
	}
}

// drop notes why a job never starts, or the members of a digest.
func (w *memory) drop(entry string, reason queue.Reason, rule string) {
	for _, i := range w.of[entry] {
		w.results[i].Reason, w.results[i].Rule = reason, rule
	}
}
