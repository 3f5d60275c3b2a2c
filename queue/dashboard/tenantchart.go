package dashboard

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
)

// tenantSpans are the charts of a tenant by the names that people give them.
var tenantSpans = []string{"3 h", "7 d"}

// tenantChartsAge is how old the charts of tenants may be: they get a point every ten seconds.
const tenantChartsAge = 10 * time.Second

// tenantCharts returns the points of the tenants that have charts.
func (w *watched) tenantCharts(ctx context.Context, span watch.Chart) (map[string][]watch.TenantPoint, error) {
	read := func(ctx context.Context) (any, error) { return w.inspector.TenantCharts(ctx, span) }
	value, err := w.cache.get(ctx, reading{fmt.Sprint("charts of tenants ", span), tenantChartsAge, read})
	charts, _ := value.(map[string][]watch.TenantPoint)
	return charts, err
}

// seriesOf are the points of a tenant, as a chart draws them.
func seriesOf(points []watch.TenantPoint, now time.Time, span watch.Chart) series {
	s := series{now: now, span: span}
	for _, p := range points {
		s.points = append(s.points, watch.Point{
			At: p.At, Health: watch.Health{Waiting: p.Waiting},
			Counters: queue.Counters{Offered: p.Offered, Started: p.Started, Dropped: p.Dropped},
		})
	}
	return s
}

// chartsOfTenant draws a tenant's charts; none if nothing is kept of it.
func (w *watched) chartsOfTenant(ctx context.Context, v *tenantView) error {
	span := spans[v.Span]
	all, err := w.tenantCharts(ctx, span)
	if points := all[v.Stats.Tenant]; len(points) > 1 {
		s := seriesOf(points, v.Now, span)
		v.Charts = []chart{s.lines(startsTitle, s.starts()...), s.lines("Waiting jobs", waiting()), s.lines("Dropped a second",
			line{"dropped", "l4", rateOf(func(p watch.Point) int64 { return p.Counters.Dropped })})}
	}
	return err
}

// The view box of a small chart in a row.
const sparkWidth, sparkHeight = 100.0, 18.0

// sparks draws what waited in the last hours, for those tenants of a list that have charts.
func (w *watched) sparks(ctx context.Context, now time.Time) (map[string]string, error) {
	all, err := w.tenantCharts(ctx, watch.LastHours)
	drawn := make(map[string]string)
	for tenant, points := range all {
		values := seriesOf(points, now, watch.LastHours).values(waiting())
		top := 1.0
		for _, v := range values {
			if v > top { // NaN is not
				top = v
			}
		}
		drawn[tenant] = spark(values, top)
	}
	return drawn, err
}

// spark draws a line, broken where a value is not known.
func spark(values []float64, top float64) string {
	var b strings.Builder
	pen := "M"
	for i, v := range values {
		if math.IsNaN(v) {
			pen = "M"
			continue
		}
		fmt.Fprintf(&b, "%s%.1f %.1f", pen, sparkWidth*float64(i+1)/float64(len(values)), 1+(sparkHeight-2)*(1-v/top))
		pen = "L"
	}
	return b.String()
}
