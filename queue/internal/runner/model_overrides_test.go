package runner

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/policyfile"
	"github.com/waterclock/waterclock/queue/internal/clock"
	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// A decree is an override as the textbook knows it: until an instant of Redis's clock it replaces the rules of a scope, how
// much runs at once, or both.
type decree struct {
	code         code
	since, until int64
}

// over returns a code with what the decree says in its place.
func (d decree) over(c code) code {
	if len(d.code.norms)+len(d.code.shadows) > 0 {
		c.norms, c.shadows = d.code.norms, d.code.shadows
	}
	if d.code.most > 0 {
		c.most = d.code.most
	}
	return c
}

// at returns the policies as they are at an instant of Redis's clock: without the decrees that have ended.
func (c codex) at(now int64) codex {
	for scope, d := range c.decrees {
		if d.until <= now {
			c.decrees = maps.Clone(c.decrees)
			delete(c.decrees, scope)
		}
	}
	return c
}

// decreed returns what limits a scope, where the policies have a limit of its own or not.
func (c codex) decreed(scope string, limit code) code {
	if d, is := c.decrees[scope]; is {
		return d.over(limit)
	}
	return limit
}

// written returns the decrees as Redis keeps them.
func (c codex) written() (all []policyfile.Override) {
	for _, scope := range slices.Sorted(maps.Keys(c.decrees)) {
		d := c.decrees[scope]
		o := policyfile.Override{Limit: "queue", Bounds: d.code.bounds(), Since: d.since, Until: d.until}
		switch tenant, user := envelope.ParseScope(scope); {
		case strings.HasPrefix(scope, envelope.LimitScope):
			o.Limit, o.Values, _ = envelope.ParseLimitScope(scope)
		case user != "":
			o.Limit, o.Values = "user", []string{tenant, user}
		case tenant != "":
			o.Limit, o.Values = "tenant", []string{tenant}
		}
		all = append(all, o)
	}
	return all
}

// decree draws a decree.
func (w *world) decree(scope string) (d decree) {
	d.since = w.redisNow()
	d.until = d.since + oneOf[int64](w, 50, 200, 500, 1000, 3000)*1000
	size := map[byte]int64{'q': 10, 't': 4, 'u': 1, 'l': 4}[scope[0]]
	if d.code = w.code(size); scope[0] == 'l' {
		d.code = w.namedCode()
		d.code.room = 0
	} else if w.chance(4) {
		d.code = code{most: 1 + w.IntN(3*int(size))}
	}
	return d
}

// override replaces what limits somebody for a time, or ends that before its time.
func (w *world) override() { w.overrideFor(w.decreeScope()) }

// decreeScope draws whom an override names.
func (w *world) decreeScope() string {
	if scope := w.limitScope(); scope != "" && w.chance(2) {
		return scope
	}
	return oneOf(w, envelope.QueueScope, envelope.TenantScope(w.tenant()), envelope.UserScope(w.tenant(), w.user()), envelope.UserScope(w.tenant(), w.user()))
}

func (w *world) overrideFor(scope string) {
	d := w.decree(scope)
	w.mu.Lock()
	c := cloneOf(w.judge.codex)
	w.mu.Unlock()
	set := slices.Sorted(maps.Keys(c.decrees))
	_, counts := c.limitOf(scope)
	switch {
	case len(set) > 0 && w.chance(3):
		scope = set[w.IntN(len(set))]
		delete(c.decrees, scope)
		w.note("", "", "OVERRIDE of %s ends by hand", scope)
	case scope[0] == 'l' && counts == "": // nothing limits the value
		return
	default:
		c.decrees[scope] = d
		w.note("", "", "OVERRIDE of %s for %v: %v", scope, clock.Micros(d.until-d.since), d.code)
	}
	w.govern(c)
}

// overrideOther overrides limits of somebody who has nothing to do with the contestants.
func (w *world) overrideOther() {
	w.overrideFor(oneOf(w, envelope.TenantScope(bystander), envelope.UserScope("t0", bystander)))
}

// withoutDecrees ends the decrees by hand that the policies have.
func (w *world) withoutDecrees() {
	w.mu.Lock()
	c := cloneOf(w.judge.codex)
	w.mu.Unlock()
	if len(c.decrees) > 0 {
		clear(c.decrees)
		w.govern(c)
	}
}

// tidy drops the decrees about values that no limit by name counts any more, or that it counts for something else.
func (c codex) tidy(before codex) {
	maps.DeleteFunc(c.decrees, func(scope string, _ decree) bool {
		_, was := before.limitOf(scope)
		_, is := c.limitOf(scope)
		return is != was
	})
}

// lapse takes in that decrees have ended.
func (j *judge) lapse() {
	now := clockNow() + j.w.offset.Microseconds()
	c := j.codex.at(now)
	if len(c.decrees) == len(j.codex.decrees) {
		return
	}
	for scope := range j.codex.decrees {
		if _, still := c.decrees[scope]; !still {
			j.w.noteLocked("", "", "the OVERRIDE of %s ends", scope)
			j.lapsed[scope] = clockNow()
		}
	}
	j.govern(c)
}

// endFor returns when the first decree ends that governs somebody, on Redis's clock.
func (c codex) endFor(all []charge) (scope string, end int64) {
	end = never
	for _, charge := range all {
		if d, is := c.decrees[charge.scope]; is && d.until < end {
			scope, end = charge.scope, d.until
		}
	}
	return scope, end
}

// checkEnd asks whether a slot lies at the end of an override that governs the job, or later. The leader may have known of the
// end a bit before.
func (j *judge) checkEnd(t *task, a Attempt, by gift) {
	scope, end := by.codex.endFor(by.codex.charges(t))
	sure := end - 50_000 - j.w.offset.Microseconds()
	if a.Slot >= end && by.at < sure && j.quiet(by.at) && !t.oddly && !t.doubtful {
		j.fail(t, "%s has a slot %v after the end of an override of %s", t, clock.Micros(a.Slot-end), scope)
	}
}

// checkKept asks whether a job was dropped as expired before the end of an override after which it could have started.
func (j *judge) checkKept(t *task, now int64) {
	scope, end := j.codex.endFor(j.charges(t.whole()))
	since := j.codex.decrees[scope].since - j.w.offset.Microseconds()
	if end -= j.w.offset.Microseconds(); end < t.deadline && now < end && since < now-500_000 && max(j.governed, since) < now-500_000 {
		j.fail(t, "%s is dropped as expired, %v before the end of an override of %s, and %v before its deadline", t, clock.Micros(end-now), scope, clock.Micros(t.deadline-now))
	}
}

// farthest is how long before the end of an override a worker may be too far away to start what it governs: it knows the
// time badly.
const farthest = 1100 * time.Millisecond

// awaitsEnd returns whether those who are charged may wait for the end of an override, and when the last one has ended.
func (j *judge) awaitsEnd(all []charge, now int64) (awaits bool, last int64) {
	_, end := j.codex.endFor(all)
	for _, c := range all {
		last = max(last, j.lapsed[c.scope])
	}
	return end < now+j.w.offset.Microseconds()+farthest.Microseconds(), last
}

// file returns the policies as Redis keeps them.
func (c codex) file() policyfile.File {
	f := policyfile.File{
		Queue: c.queue.bounds().Limits, Default: "none", Policies: map[string]policyfile.Policy{"none": {}}, Tenants: map[string]string{},
		Limits: c.limits(), Overrides: c.written(),
	}
	for i := range c.tenants {
		name := fmt.Sprint("p", i)
		f.Tenants[fmt.Sprint("t", i)] = name
		f.Policies[name] = policyfile.Policy{
			Tenant: c.tenants[i].bounds().Limits, User: c.users[i].bounds().Limits, Weight: c.weights[i], UserCapacity: c.users[i].room,
			Digest: c.termsOf(fmt.Sprint("t", i)).written(),
		}
	}
	return f
}
