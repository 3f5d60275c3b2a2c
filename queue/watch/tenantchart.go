package watch

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A TenantPoint is how one of the tenants with most waiting was at one instant: a point of its
// charts. Counters count since the beginning.
type TenantPoint struct {
	At      time.Time
	Waiting int64 // jobs in its lanes
	Offered int64 // since the beginning, as the next two
	Started int64
	Dropped int64
}

// busyPoint is the points of all charted tenants at one instant, as they are kept.
type busyPoint struct {
	At      time.Time    `json:"at"`
	Tenants []busyTenant `json:"tenants"`
}

// A busyTenant is short, since there are thousands.
type busyTenant struct {
	Name    string `json:"t"`
	Waiting int64  `json:"w"`
	Offered int64  `json:"o"`
	Started int64  `json:"s"`
	Dropped int64  `json:"d,omitempty"`
}

// How many tenants have charts, among how many that are due first those with most waiting are
// sought, and how long a name is at most that is kept so often.
const (
	chartTenants      = 10
	chartTenantSample = 50
	chartNameBytes    = 100
)

// tenantRings are the charts of tenants. There is none of the last minutes.
var tenantRings = [...]store.Ring{
	LastHours: {Step: 10 * time.Second, Points: 1080, Of: "tenants"},
	LastDays:  {Step: 5 * time.Minute, Points: 2016, Of: "tenants"},
}

// recordTenants keeps points of the tenants with most waiting, once in ten seconds. One that
// has had a point is looked at again, so that its line goes on.
func (w *Watcher) recordTenants(ctx context.Context, now int64) error {
	ring := tenantRings[LastHours]
	text, err := w.root.Charted(ctx, ring, now)
	if err != nil || text != "" {
		return err
	}
	if text, err = w.root.Charted(ctx, ring, now-ring.Step.Microseconds()); err != nil {
		return err
	}
	names, err := w.due(ctx, chartTenantSample)
	if err != nil {
		return err
	}
	var before busyPoint
	_ = json.Unmarshal([]byte(text), &before) // an unreadable point names no tenants
	for _, t := range before.Tenants {
		if !slices.Contains(names, t.Name) {
			names = append(names, t.Name)
		}
	}
	all, err := w.tenants(ctx, names)
	if err != nil {
		return err
	}
	point, err := json.Marshal(busyPoint{envelope.Instant(now), busiest(all)})
	if err != nil {
		return err
	}
	return w.root.Chart(ctx, tenantRings[LastHours:], now, string(point))
}

// busiest returns the tenants with most waiting.
func busiest(all []store.TenantView) (busy []busyTenant) {
	slices.SortStableFunc(all, func(a, b store.TenantView) int { return cmp.Compare(b.Waiting, a.Waiting) })
	for _, t := range all {
		if len(busy) < chartTenants && t.Waiting > 0 && len(t.Tenant) <= chartNameBytes {
			busy = append(busy, busyTenant{t.Tenant, t.Waiting, t.Counts.Offered, t.Counts.Started, t.Counts.Dropped})
		}
	}
	return busy
}

// TenantCharts returns the points of the tenants with most waiting, oldest first, by tenant: of
// [LastHours] or [LastDays]. There are no points of times in which no program called
// [Watcher.Record], or in which ten other tenants had more jobs waiting.
func (w *Watcher) TenantCharts(ctx context.Context, c Chart) (map[string][]TenantPoint, error) {
	if c == LastMinutes {
		return nil, nil
	}
	texts, err := w.root.ChartOf(ctx, tenantRings[c])
	if err != nil {
		return nil, w.failed("reading the charts of", err)
	}
	clock, err := w.root.Clock(ctx)
	if err != nil {
		return nil, w.failed("reading the charts of", err)
	}
	oldest := envelope.Instant(clock.Now).Add(-c.Length())
	charts := make(map[string][]TenantPoint)
	for _, text := range texts {
		var p busyPoint
		if json.Unmarshal([]byte(text), &p) != nil || !p.At.After(oldest) {
			continue
		}
		for _, t := range p.Tenants {
			charts[t.Name] = append(charts[t.Name], TenantPoint{p.At, t.Waiting, t.Offered, t.Started, t.Dropped})
		}
	}
	for points := range maps.Values(charts) {
		slices.SortFunc(points, func(a, b TenantPoint) int { return a.At.Compare(b.At) })
	}
	return charts, nil
}
