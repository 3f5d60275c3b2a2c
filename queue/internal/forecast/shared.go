package forecast

import (
	"cmp"
	"context"
	"maps"
	"time"

	"github.com/waterclock/waterclock/internal/limits"
	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
	"github.com/waterclock/waterclock/throttle"
)

// A Shared is what a shared limit says. It is asked where it is decided, since others spend it, too.
type Shared struct {
	Rules []SharedRule
	opens int64 // when they all let a job start; 0 if nobody has spent of them for as long as they remember
}

// A SharedRule is when a rule lets a job of cost 1 start, and how many more it lets start now. Of a shadow rule it is not known how many: all
// that it ever lets start at once, or none.
type SharedRule struct {
	When int64
	Room int
}

// Look reads what the rules of scopes remember, under policies, and asks the shared limits among them. Those that do not answer are not
// known.
func (r *Reader) Look(ctx context.Context, policies *schedule.Policies, scopes []string, running *Census) (*Forecast, error) {
	view, err := r.Store.Look(ctx, scopes)
	if err != nil {
		return nil, err
	}
	return r.forecast(ctx, policies, view, scopes, running), nil
}

func (r *Reader) forecast(ctx context.Context, policies *schedule.Policies, view store.View, scopes []string, running *Census) *Forecast {
	p := New(policies, view, running)
	p.shared = r.ask(ctx, policies, view.Now, scopes)
	return p
}

// ask asks the shared limits among scopes, each of their rules by itself. What cannot be asked is missing.
func (r *Reader) ask(ctx context.Context, policies *schedule.Policies, now int64, scopes []string) map[string]*Shared {
	found := make(map[string]*Shared)
	var requests []throttle.Request
	var read []func(throttle.Decision) // by each request
	for _, scope := range scopes {
		limit, _ := policies.Limit(scope)
		if limit.Shared == nil {
			continue
		}
		s, part := &Shared{}, limit.Shared.Parts[0]
		found[scope] = s
		for i := range part.Rules {
			subject := throttle.Subject{Key: part.Key, Rules: alone(part.Rules, i), Slack: limits.SharedSlack}
			requests = append(requests, throttle.Request{Subjects: []throttle.Subject{subject}})
			read = append(read, func(d throttle.Decision) { s.read(now, limit.Rules.Rule(i), d) })
		}
	}
	decisions, _ := r.limiter.PeekMany(ctx, requests...)
	for k, d := range decisions {
		if d.Outcome != throttle.Undecided {
			read[k](d)
		}
	}
	maps.DeleteFunc(found, func(scope string, s *Shared) bool {
		limit, _ := policies.Limit(scope)
		return len(s.Rules) < len(limit.Shared.Parts[0].Rules)
	})
	return found
}

// fieldOf returns the kind by which the state names what a rule remembers: a warm-up by the calendar is a window of it.
func fieldOf(r throttle.Rule) throttle.Kind {
	if r.Unit() != "" {
		return throttle.KindCalendar
	}
	return r.Kind()
}

// alone returns a rule to be asked by itself, which stands in the same place among those of its kind: that is how the state names what each of
// them remembers. Those before it are so wide that they say nothing.
func alone(all []throttle.Rule, i int) (asked []throttle.Rule) {
	rule := all[i]
	for _, r := range all[:i] {
		if fieldOf(r) != fieldOf(rule) || r.Shadows() != rule.Shadows() {
			continue
		}
		switch fieldOf(r) {
		case throttle.KindLeak:
			r = throttle.Leak(rules.MaxLimit, time.Millisecond)
		case throttle.KindTokenBucket:
			r = throttle.TokenBucket(rules.MaxLimit, time.Millisecond, rules.MaxLimit)
		case throttle.KindFixedWindow:
			r = throttle.FixedWindow(rules.MaxLimit, r.Period())
		case throttle.KindCalendar:
			r = throttle.CalendarWindow(rules.MaxLimit, r.Unit(), cmp.Or(r.Zone(), "UTC"))
		case throttle.KindSlidingCounter:
			r = throttle.SlidingCounter(rules.MaxLimit, r.Period(), r.Buckets())
		default: // windows and spacings have one log
			continue
		}
		if rule.Shadows() {
			r = r.AsShadow()
		}
		asked = append(asked, r)
	}
	return append(asked, rule)
}

// read reads what a rule says by itself.
func (s *Shared) read(now int64, rule rules.Rule, d throttle.Decision) {
	says := SharedRule{now + d.RetryAfter.Microseconds(), d.Remaining}
	switch {
	case d.Outcome == throttle.Dropped:
		says.When = now + d.NextAfter.Microseconds()
	case rule.Shadow && d.Shadow == "":
		says.Room = rule.Most()
	}
	if s.Rules = append(s.Rules, says); d.ResetAfter > 0 && !rule.Drop && !rule.Shadow {
		s.opens = max(s.opens, says.When)
	}
}
