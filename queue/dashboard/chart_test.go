package dashboard

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
	"github.com/waterclock/waterclock/throttle"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// history returns a point a second up to noon, in which a counter grows by ten a second.
func history(seconds int) (points []watch.Point) {
	for k := seconds; k >= 0; k-- {
		n := int64(10 * (1000 - k))
		points = append(points, watch.Point{
			At: noon.Add(-time.Duration(k) * time.Second), Health: watch.Health{Waiting: 7}, Counters: queue.Counters{Started: n},
			Blocked: map[string]time.Duration{"leak 5/s": time.Duration(n) * time.Second, "window 10/1m": time.Duration(n/10) * time.Second, "paused": time.Hour},
		})
	}
	return points
}

func started(a, b watch.Point) (float64, bool) {
	n := b.Counters.Started - a.Counters.Started
	return float64(n) / b.At.Sub(a.At).Seconds(), n >= 0
}

// A line is the rate of its counter, and broken where nobody watched, or where the counter has
// begun again.
func TestLine(t *testing.T) {
	known := func(points []watch.Point) (n int) {
		for _, v := range (series{points, noon, watch.LastMinutes}).values(line{value: started}) {
			if math.IsNaN(v) {
				continue
			}
			if n++; v != 10 {
				t.Errorf("%v, want 10", v)
			}
		}
		return n
	}
	whole := history(590)
	if n := known(whole); n < 117 || n > chartSteps {
		t.Errorf("%d of %d steps are known", n, chartSteps)
	}
	gap := append(append([]watch.Point{}, whole[:200]...), whole[400:]...)
	for k := range gap[200:] {
		gap[200+k].Counters.Started += 5000 // of a time in which nobody watched
	}
	if n := known(gap); n < 75 || n > 81 {
		t.Errorf("with a gap of a third, %d steps are known", n)
	}
	again := append([]watch.Point{}, whole...)
	for k := range again[:300] {
		again[k].Counters.Started += 1_000_000 // before Redis was emptied
	}
	if n := known(again); n < 116 || n > chartSteps-1 {
		t.Errorf("with a counter that begins again, %d steps are known", n)
	}
	for _, few := range [][]watch.Point{nil, whole[:1]} {
		if n := known(few); n != 0 {
			t.Errorf("%d steps are known of %d points", n, len(few))
		}
	}
}

var place = regexp.MustCompile(`[ML](\d+\.\d) (\d+\.\d)`)

// Charts stay within their frame, say in words what they show, and tell rules apart.
func TestCharts(t *testing.T) {
	all := chartsOf(series{history(590), noon, watch.LastMinutes}, allowance{PerSecond: 12})
	for _, c := range all {
		for _, p := range c.Paths {
			for _, at := range place.FindAllStringSubmatch(p.D, -1) {
				var x, y float64
				if _, err := fmt.Sscan(at[1], &x); err != nil || x < chartLeft || x > chartRight {
					t.Errorf("%s: x is %s", c.Title, at[1])
				}
				if _, err := fmt.Sscan(at[2], &y); err != nil || y < chartTop || y > chartBottom {
					t.Errorf("%s: y is %s", c.Title, at[2])
				}
			}
			if strings.Contains(p.D, "NaN") || strings.Contains(p.D, "Inf") {
				t.Errorf("%s: %s", c.Title, p.D)
			}
		}
	}
	if want := "Starts and offers a second. Now: started 10, offered 0, rules allow now 12"; all[0].Says != want {
		t.Errorf("%q, want %q", all[0].Says, want)
	}
	if at := all[0].Y(12); at < chartTop || !strings.Contains(all[0].Paths[len(all[0].Paths)-1].D, fmt.Sprintf(" %.1fL", at)) {
		t.Errorf("what the rules allow is not drawn: %v", all[0].Paths)
	}
	far := chartsOf(series{history(590), noon, watch.LastMinutes}, allowance{PerSecond: 80})[0]
	if n := len(far.Legend); far.Legend[n-1] != (key{"", "rules allow now", "80, above the chart"}) || len(far.Paths) != len(all[0].Paths)-1 {
		t.Errorf("%+v", far.Legend)
	}
	if want := "by rule. Now: leak 5/s 10, window 10/1m 1"; !strings.HasSuffix(all[1].Says, want) || len(all[1].Paths) != 2 {
		t.Errorf("%q, want %q; without what kept nobody waiting", all[1].Says, want)
	}
	for _, c := range chartsOf(series{nil, noon, watch.LastDays}, allowance{}) {
		if !c.Empty {
			t.Errorf("%s: not empty", c.Title)
		}
	}
}

// An axis holds its value, and not much more.
func TestScale(t *testing.T) {
	for _, top := range []float64{0, .3, 1, 1.1, 9, 10, 11, 16, 22, 99, 100, 101, 12345, 1e7} {
		ticks := scale(top)
		if end := ticks[2].At; end < top || end > max(1, 2*top) {
			t.Errorf("%v: the axis ends at %v", top, end)
		}
	}
}

// A strip shows which starts count, and when the next one fits.
func TestStrip(t *testing.T) {
	recent := []time.Time{noon.Add(-70 * time.Second), noon.Add(-50 * time.Second), noon.Add(-20 * time.Second), noon.Add(-time.Second)}
	window, spacing := throttle.Window(3, time.Minute), throttle.Spacing(3*time.Second)
	e := queue.Explanation{Now: noon, Rules: []queue.RuleState{
		{Scope: "user", Rule: "window 3/1m", When: noon.Add(10 * time.Second), Limit: 3}, {Scope: "tenant", Rule: "spacing 3s", When: noon.Add(time.Hour)},
	}}
	e.Binding = &e.Rules[0]
	s, ok := stripOf(window, e, recent)
	if !ok || len(s.Starts) != 3 || len(s.Gone) != 0 || !s.Binds || s.Says != "window 3/1m: 3 starts count now; it allows the next one in 10s." {
		t.Errorf("%+v", s)
	}
	if s.Begin > s.Starts[0]+.5 || s.Begin < s.Starts[0]-.5 || s.Next != s.End || s.Now <= s.Starts[2] || s.Now >= s.Next {
		t.Errorf("the stretch does not begin at the start that leaves it: %+v", s)
	}
	s, ok = stripOf(spacing, e, recent)
	if !ok || len(s.Starts) != 1 || s.Binds || s.Next != 0 || s.Says != "spacing 3s: 1 start counts now; it allows one now." {
		t.Errorf("%+v: the tenant's rule is taken for the user's", s)
	}
	e.Rules = []queue.RuleState{{Scope: "user", Rule: "window 3/1m (warm-up, day 2 of 3)", When: noon.Add(10 * time.Second)}}
	warm, ok := stripOf(throttle.Warmup(noon.AddDate(0, 0, -1).Format(time.DateOnly), "1:1/1m,2:3/1m,3:9/1m", "UTC"), e, recent)
	if !ok || len(warm.Starts) != 3 || warm.Says != "window 3/1m: 3 starts count now; it allows the next one in 10s." {
		t.Errorf("%+v: not the window of the day", warm)
	}
	if _, ok := stripOf(throttle.Leak(1, time.Second), e, recent); ok {
		t.Error("a leak looks at no starts")
	}
}

// The permissions that the documentation gives are enough to look, to act and to keep charts.
func TestDocumentedPermissions(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	rights := regexp.MustCompile(`ACL SETUSER clock on >secret (.*)`).FindStringSubmatch(string(page))
	if rights == nil {
		t.Fatal("docs/operations.md has no ACL")
	}
	server := redistest.Start(t, append([]string{"--user", "clock", "on", ">secret"}, strings.Fields(rights[1])...)...)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "clock", Password: "secret"})
	t.Cleanup(func() { rdb.Close() })
	v := visit(t, rdb, secret)
	v.limit(limits)
	v.enqueue(jobs("school", "teacher", 3)...)
	v.signIn()
	for _, page := range everyPage("school", "teacher", "schoolteacher1") {
		v.page(page)
	}
	v.act("do/pause?t=school", v.form("for", "10m"))
	v.act("do/purge?t=school", v.form("sure", "yes"))
	if points, err := v.inspector().Chart(t.Context(), watch.LastDays); err != nil || len(points) != 1 {
		t.Errorf("%d points, %v", len(points), err)
	}
}
