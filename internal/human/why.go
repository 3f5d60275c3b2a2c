package human

import (
	"fmt"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/wallclock"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
)

// Why says why the next job of a user waits.
func Why(e queue.Explanation, tenant, user string) string {
	who := tenant + " / " + user
	if e.Waiting == 0 {
		return fmt.Sprintf("Nothing of %s waits; of the tenant: %s.", who, Jobs(e.TenantWaiting))
	}
	text := fmt.Sprintf("Waiting: %s of %s, %s of the tenant. %s.", Jobs(e.Waiting), who, Thousands(e.TenantWaiting), next(e))
	if e.Binding != nil && !e.Binding.Until.IsZero() {
		text += fmt.Sprintf(" That is an override until %s.", Until(e.Now, e.Binding.Until, e.Binding.Note))
	}
	if e.Workers == 0 && (e.Binding != nil || e.AtEarliest) {
		text += " No worker lives: nothing starts until one does."
	}
	if late := tooLate(e.Now, e.Estimate); late != "" {
		text += " " + late
	}
	return text
}

// Backlog says how much of a tenant waits, since when, and how long that takes.
func Backlog(b watch.Backlog) string {
	text := fmt.Sprintf("Waiting: %s of %s", Jobs(b.Waiting), b.Tenant)
	if !b.Oldest.IsZero() {
		text += fmt.Sprintf(", the oldest for %s", Span(b.Now.Sub(b.Oldest)))
	}
	text += "."
	switch {
	case b.Drains == 0:
	case b.User != "":
		text += fmt.Sprintf(" The last one starts in %s at the earliest: %s of %s wait for their rule %s.", Span(b.Drains), Jobs(b.Jobs), Clean(b.User), b.Rule)
	default:
		text += fmt.Sprintf(" The last one starts in %s at the earliest, by the rule %s.", Span(b.Drains), b.Rule)
	}
	return text
}

// Until says when an override ends, who has set it and why: "12:00:00Z, in 2h (ann: they are slow)".
func Until(now, end time.Time, by queue.Note) string {
	text := end.UTC().Format(time.RFC3339) + ", " + From(now, end)
	if who := Clean(strings.Trim(by.Author+": "+by.Reason, ": ")); who != "" {
		text += " (" + who + ")"
	}
	return text
}

// next says what the next job of a user waits for.
func next(e queue.Explanation) string {
	b := e.Binding
	switch {
	case b == nil && e.AtEarliest:
		return "The next one waits for a limit: " + e.Limit
	case b == nil && e.Workers == 0:
		return "Limits let the next one start now, but no worker lives: nothing starts until one does"
	case b == nil:
		return "The next one may start now, when its turn comes and a place is free"
	case b.Running == 1:
		return fmt.Sprintf("The next one waits for %s: 1 job runs, for %s", of(b, "limit"), Span(e.Now.Sub(b.Oldest)))
	case b.Running > 0:
		return fmt.Sprintf("The next one waits for %s: %s run, the oldest for %s", of(b, "limit"), Jobs(b.Running), Span(e.Now.Sub(b.Oldest)))
	case b.Rule == "paused":
		return fmt.Sprintf("The %s is paused; the next one starts %s", Scope(b), From(e.Now, e.Start))
	case b.Zone != "":
		return fmt.Sprintf("The next one waits until %s, %s: it waits for %s", Local(e.Now, e.Start, b.Zone), From(e.Now, e.Start), of(b, "rule"))
	}
	return fmt.Sprintf("The next one starts %s: it waits for %s", From(e.Now, e.Start), of(b, "rule"))
}

// Local says what the clock of a zone shows at an instant, and on which day: "08:00 in Asia/Tokyo, tomorrow".
func Local(now, at time.Time, zone string) string {
	where, err := wallclock.Zone(zone)
	if err != nil {
		return at.UTC().Format(time.RFC3339)
	}
	here, there := now.In(where), at.In(where)
	text := there.Format("15:04")
	if there.Second() != 0 {
		text = there.Format("15:04:05")
	}
	day := "on " + there.Format("Monday, 2 January 2006")
	for days, word := range []string{"today", "tomorrow"} {
		if here.AddDate(0, 0, days).Format(time.DateOnly) == there.Format(time.DateOnly) {
			day = word
		}
	}
	return fmt.Sprintf("%s in %s, %s", text, zone, day)
}

// Scope says whose a rule is: "tenant", or "limit domain (gmail.com)".
func Scope(r *queue.RuleState) string {
	switch {
	case r.Scope != queue.ScopeLimit:
		return string(r.Scope)
	case r.Key == "":
		return "limit " + r.Name
	}
	return fmt.Sprintf("limit %s (%s)", r.Name, Clean(r.Key))
}

// of names a rule or a limit, and whose it is.
func of(r *queue.RuleState, what string) string {
	if r.Scope == queue.ScopeLimit {
		return fmt.Sprintf("%s of %s", r.Rule, Scope(r))
	}
	return fmt.Sprintf("the %s's %s %s", r.Scope, what, r.Rule)
}

// WhyJob says of a job where it waits and when it starts. [Why] says what its user's next job
// waits for.
func WhyJob(s queue.JobState, job string) string {
	place := fmt.Sprintf(" waits at place %s of its lane", Thousands(s.Place))
	if s.Place == 0 {
		place = " waits, not in its lane yet or behind 10,000 others"
	}
	text := fmt.Sprintf("%s. %s.", job+place, starts(s.Now, s.Estimate))
	if late := tooLate(s.Now, s.Estimate); late != "" && s.Estimate != s.Explanation.Estimate {
		text += " " + late
	}
	return text
}

// starts says when a waiting job starts, as far as that is known.
func starts(now time.Time, e queue.Estimate) string {
	switch {
	case e.Start.IsZero():
		return "When it starts is unknown"
	case e.AtEarliest:
		return fmt.Sprintf("It starts %s at the earliest (%s)", From(now, e.Start), e.Limit)
	}
	return fmt.Sprintf("It starts %s, if no other job comes before it", From(now, e.Start))
}

// tooLate says when a job is too late to start; "" if it never is.
func tooLate(now time.Time, e queue.Estimate) string {
	at := e.StartBy.UTC().Format(time.RFC3339)
	switch {
	case e.StartBy.IsZero():
		return ""
	case e.StartBy.Before(now):
		return fmt.Sprintf("It was too late at %s, %s: it is dropped and never starts.", at, From(now, e.StartBy))
	}
	return fmt.Sprintf("It is too late at %s, %s: it is dropped unless it has started by then.", at, From(now, e.StartBy))
}
