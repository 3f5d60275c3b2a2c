package dashboard

import (
	"context"
	"net/url"
	"time"

	"github.com/waterclock/waterclock/queue"
)

// rowsOf is how many rows a list shows at a time.
const rowsOf = 50

// A pager leads to the parts of a list.
type pager struct {
	From, To int
	Rows     int // how many a part has
	Less     bool
	More     bool
}

func newPager(from, shown int, more bool) pager {
	return pager{from, from + shown, rowsOf, from > 0, more}
}

// Before is where the part before begins.
func (p pager) Before() int { return max(0, p.From-p.Rows) }

// A tenantsView is the page of all tenants.
type tenantsView struct {
	Now    time.Time
	Rows   []queue.TenantStats
	Exact  *queue.TenantStats // the one whose whole name was searched
	Sort   string             // "" is as they are due
	Holds  string
	Known  int // by the survey
	Whole  time.Time
	Sparks map[string]string // what waited lately, of those with most
	pager
}

func readTenants(ctx context.Context, w *watched, q url.Values) (any, error) {
	now, err := w.inspector.Now(ctx)
	v := tenantsView{Now: now, Sort: q.Get("sort"), Holds: q.Get("q")}
	if err != nil {
		return nil, err
	}
	if v.Sparks, err = w.sparks(ctx, now); err != nil {
		return nil, err
	}
	from := number(q, "from")
	if v.Holds != "" {
		exact, err := w.inspector.Tenant(ctx, v.Holds)
		if err != nil {
			return nil, err
		}
		if exact.Offered > 0 {
			v.Exact = &exact
		}
	}
	if tenantOrders[v.Sort] == nil {
		v.Sort = ""
	}
	if v.Sort == "" && v.Holds == "" {
		rows, more, err := w.inspector.Tenants(ctx, from, rowsOf)
		v.Rows, v.pager = rows, newPager(from, len(rows), more)
		return v, err
	}
	if err := w.survey.step(ctx, w.inspector); err != nil {
		return nil, err
	}
	order := v.Sort
	if order == "" {
		order = "name"
	}
	found := w.survey.list(order, v.Holds)
	v.Known, v.Whole = found.known, found.whole
	for _, row := range found.rows[min(from, len(found.rows)):min(from+rowsOf, len(found.rows))] {
		v.Rows = append(v.Rows, row.TenantStats)
	}
	v.pager = newPager(from, len(v.Rows), from+rowsOf < len(found.rows))
	return v, nil
}
