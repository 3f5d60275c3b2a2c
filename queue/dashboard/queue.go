package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
)

// A queueView is the page of a queue.
type queueView struct {
	Now     watch.Point
	Starts  float64 // a second, lately; negative if nobody knows
	Allowed allowance
	Binds   string // what holds most tenants and users back
	Pauses  []queue.Pause
	Span    string
	Spans   []string
	Charts  []chart
	Late    time.Duration // of the latest worker
}

// spans are the charts by the names that people give them.
var spans = map[string]watch.Chart{"10 min": watch.LastMinutes, "3 h": watch.LastHours, "7 d": watch.LastDays}

func readQueue(ctx context.Context, w *watched, q url.Values) (any, error) {
	now, err := w.now(ctx)
	if err != nil {
		return nil, err
	}
	v := queueView{Now: now, Span: q.Get("span"), Spans: []string{"10 min", "3 h", "7 d"}, Starts: -1}
	span, known := spans[v.Span]
	if !known {
		v.Span = "10 min"
	}
	points, err := w.inspector.Chart(ctx, span)
	if err != nil {
		return nil, err
	}
	if v.Pauses, err = w.inspector.Pauses(ctx); err != nil {
		return nil, err
	}
	workers, err := w.inspector.Workers(ctx)
	if err != nil {
		return nil, err
	}
	for _, worker := range workers {
		if worker.Alive {
			v.Late = max(v.Late, worker.Late)
		}
	}
	if v.Allowed, err = w.allowance(ctx, now.Health.Waiting); err != nil {
		return nil, err
	}
	if span == watch.LastMinutes {
		v.Starts, v.Binds = lately(points)
	}
	v.Charts = chartsOf(series{points, now.At, span}, v.Allowed)
	return v, nil
}

// lately returns the starts a second in the newest points, and the rule that held most tenants and
// users back.
func lately(points []watch.Point) (perSecond float64, binds string) {
	const recent = 10
	if len(points) < 2 {
		return -1, ""
	}
	last := points[len(points)-1]
	first := points[max(0, len(points)-1-recent)]
	seconds := last.At.Sub(first.At).Seconds()
	if seconds > 3*recent || last.Counters.Started < first.Counters.Started {
		return -1, ""
	}
	most := time.Duration(0)
	for rule, waited := range last.Blocked {
		if d := waited - first.Blocked[rule]; d > most {
			most, binds = d, rule
		}
	}
	return float64(last.Counters.Started-first.Counters.Started) / seconds, binds
}

// rateOf is the rate of a counter: its growth a second.
func rateOf(of func(watch.Point) int64) func(a, b watch.Point) (float64, bool) {
	return func(a, b watch.Point) (float64, bool) {
		n, seconds := of(b)-of(a), b.At.Sub(a.At).Seconds()
		return float64(n) / seconds, n >= 0
	}
}

// present is a number as it was.
func present(of func(watch.Point) int64) func(a, b watch.Point) (float64, bool) {
	return func(_, b watch.Point) (float64, bool) { return float64(of(b)), true }
}

// starts draws what started and what was offered.
func (s series) starts() []line {
	return []line{
		{"started", "l1 fill", rateOf(func(p watch.Point) int64 { return p.Counters.Started })},
		{"offered", "l2", rateOf(func(p watch.Point) int64 { return p.Counters.Offered })},
	}
}

const startsTitle = "Starts and offers a second"

// startsWithin draws the starts and how many the rules allow. That is only written where its line
// would press the others down.
func (s series) startsWithin(allowed float64) chart {
	const name, most = "rules allow now", 3
	of := s.starts()
	if allowed <= most*s.top(of) {
		return s.lines(startsTitle, append(of, line{name, "l5", func(_, _ watch.Point) (float64, bool) { return allowed, true }})...)
	}
	c := s.lines(startsTitle, of...)
	c.Legend = append(c.Legend, key{"", name, short(allowed) + ", above the chart"})
	c.tell()
	return c
}

// waiting is the line of what waits.
func waiting() line {
	return line{"waiting", "l1 fill", present(func(p watch.Point) int64 { return p.Health.Waiting })}
}

// chartsOf draws a queue's charts.
func chartsOf(s series, a allowance) []chart {
	starts := s.lines(startsTitle, s.starts()...)
	if a.Bounded() && a.PerSecond > 0 {
		starts = s.startsWithin(a.PerSecond)
	}
	backlog := s.lines("Waiting jobs", waiting(),
		line{"later", "l3", present(func(p watch.Point) int64 { return p.Later })})
	places := s.lines("Places",
		line{"running", "l1 fill", present(func(p watch.Point) int64 { return p.Health.Running })},
		line{"places", "l2", present(func(p watch.Point) int64 { return int64(p.Health.Places) })})
	overdue := s.lines("Seconds overdue",
		line{"the first that may start and does not", "l4 fill", func(_, b watch.Point) (float64, bool) { return b.Health.Oldest.Seconds(), true }})
	losses := s.lines("Failed, dropped and dead a second",
		line{"failed attempts", "l3", rateOf(func(p watch.Point) int64 { return p.Counters.Failed })},
		line{"dropped", "l2", rateOf(func(p watch.Point) int64 { return p.Counters.Dropped })},
		line{"dead", "l4", rateOf(func(p watch.Point) int64 { return p.Counters.Dead })})
	return []chart{starts, s.stack("Tenants and users held back, by rule", boundBy(s.points)), backlog, places, overdue, losses}
}

// boundRules is how many rules a chart tells apart.
const boundRules = 5

// boundBy returns the rules that cost most between the first point and the last, each with what it
// cost: so many seconds a second are so many tenants and users, or the queue, that it holds back.
func boundBy(points []watch.Point) (all []line) {
	if len(points) == 0 {
		return nil
	}
	cost := maps.Clone(points[len(points)-1].Blocked)
	for rule, before := range points[0].Blocked {
		cost[rule] -= before
	}
	rules := slices.SortedFunc(maps.Keys(cost), func(a, b string) int { return cmp.Or(cmp.Compare(cost[b], cost[a]), cmp.Compare(a, b)) })
	for k, rule := range rules[:min(boundRules, len(rules))] {
		if cost[rule] <= 0 {
			break
		}
		all = append(all, line{rule, fmt.Sprintf("s%d", k+1), func(a, b watch.Point) (float64, bool) {
			d := b.Blocked[rule] - a.Blocked[rule]
			return d.Seconds() / b.At.Sub(a.At).Seconds(), d >= 0
		}})
	}
	return all
}
