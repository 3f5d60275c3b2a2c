package dashboard

import (
	"fmt"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/human"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// A strip draws the starts that a window or a spacing of a user looks at: what counts now, and
// when the next one fits. Places are in units of its view box.
type strip struct {
	Rule  string
	Says  string // for who cannot see it
	Binds bool
	Starts,
	Gone []float64 // starts that count now, and those that do not any more
	Begin, End float64   // the stretch that has to be free enough for the next start
	Now, Next  float64   // Next is 0 without one
	Times      []stripAt // instants that are written
}

// A stripAt is a text at a place.
type stripAt struct {
	X    float64
	Text string
}

// The view box of a strip.
const stripLeft, stripRight = 8.0, 352.0

// stripOf draws a rule of a user; false for a rule that looks at no starts.
func stripOf(rule throttle.Rule, e queue.Explanation, recent []time.Time) (strip, bool) {
	if rule = rule.On(e.Now); rule.Kind() != throttle.KindWindow && rule.Kind() != throttle.KindSpacing {
		return strip{}, false
	}
	period := rule.Period()
	allows := e.Now
	s := strip{Rule: rule.String()}
	isIt := func(name string) bool { return name == s.Rule || strings.HasPrefix(name, s.Rule+" (warm-up, ") }
	for _, r := range e.Rules {
		if r.Scope == queue.ScopeUser && isIt(r.Rule) && r.When.After(allows) {
			allows = r.When
		}
	}
	s.Binds = e.Binding != nil && e.Binding.Scope == queue.ScopeUser && isIt(e.Binding.Rule)
	begin, end := e.Now.Add(-period), e.Now.Add(period/4)
	if allows.After(e.Now) {
		end = allows.Add(period / 10)
	}
	if first := allows.Add(-period); first.Before(begin) {
		begin = first
	}
	x := func(at time.Time) float64 {
		share := float64(at.Sub(begin)) / float64(end.Sub(begin))
		return stripLeft + (stripRight-stripLeft)*min(1, max(0, share))
	}
	for _, at := range recent {
		switch {
		case at.Before(begin):
		case at.After(e.Now.Add(-period)):
			s.Starts = append(s.Starts, x(at))
		default:
			s.Gone = append(s.Gone, x(at))
		}
	}
	s.Begin, s.End, s.Now = x(allows.Add(-period)), x(allows), x(e.Now)
	s.Times = append(s.Times, stripAt{x(begin), "−" + human.Span(e.Now.Sub(begin))}, stripAt{s.Now, "now"})
	when := "it allows one now"
	if allows.After(e.Now) {
		s.Next = x(allows)
		when = "it allows the next one " + human.From(e.Now, allows)
		s.Times = append(s.Times, stripAt{s.Next, "+" + human.Span(allows.Sub(e.Now))})
	}
	counts := "no start counts"
	if n := len(s.Starts); n == 1 {
		counts = "1 start counts"
	} else if n > 1 {
		counts = fmt.Sprintf("%d starts count", n)
	}
	s.Says = fmt.Sprintf("%s: %s now; %s.", s.Rule, counts, when)
	return s, true
}
