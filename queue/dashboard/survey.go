package dashboard

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
)

// A survey knows the tenants of a queue as they were a while ago. Redis keeps them in the order
// in which they are due; every other order needs all of them, and nobody may read 100,000 for a
// page. So a survey walks: it reads a bounded part of them a second, and only while somebody
// looks at an order that needs it.
type survey struct {
	mu      sync.Mutex
	rows    map[string]*surveyed
	at      int       // how many tenants this round has read
	round   int       // counts rounds
	begun   time.Time // the round
	whole   time.Time // when the last whole round began; the zero time before there is one
	stepped time.Time
}

type surveyed struct {
	queue.TenantStats
	round int
}

const (
	surveyPart  = 2000             // tenants a second
	surveyMost  = 1_000_000        // tenants that it knows at most
	surveyAgain = 30 * time.Second // a whole round is good for so long
)

// step walks on, if it is time.
func (s *survey) step(ctx context.Context, i *watch.Watcher) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(s.stepped) < time.Second || s.at == 0 && now.Sub(s.whole) < surveyAgain {
		return nil
	}
	if s.at == 0 {
		s.round++
		s.begun = now
	}
	s.stepped = now
	if s.rows == nil {
		s.rows = make(map[string]*surveyed)
	}
	const part = 500
	for range surveyPart / part {
		tenants, more, err := i.Tenants(ctx, s.at, part)
		if err != nil {
			return err
		}
		for _, t := range tenants {
			s.rows[t.Tenant] = &surveyed{t, s.round}
		}
		s.at += part
		if !more || s.at >= surveyMost {
			s.end()
			return nil
		}
	}
	return nil
}

// end ends a round: who was not met does not wait any more.
func (s *survey) end() {
	for name, row := range s.rows {
		if row.round != s.round {
			delete(s.rows, name)
		}
	}
	s.at, s.whole = 0, s.begun
}

// An order of tenants: their names by what they are sorted by.
var tenantOrders = map[string]func(a, b *surveyed) int{
	"waiting": func(a, b *surveyed) int { return cmp.Compare(b.Waiting, a.Waiting) },
	"started": func(a, b *surveyed) int { return cmp.Compare(b.Started, a.Started) },
	"failed":  func(a, b *surveyed) int { return cmp.Compare(b.Failed, a.Failed) },
	"dropped": func(a, b *surveyed) int { return cmp.Compare(b.Dropped, a.Dropped) },
	"dead":    func(a, b *surveyed) int { return cmp.Compare(b.Dead, a.Dead) },
	"name":    func(_, _ *surveyed) int { return 0 },
}

// A census is the tenants that a page wants to see, in an order.
type census struct {
	rows  []*surveyed
	known int       // to the survey
	whole time.Time // when its last whole round began
}

// list returns the tenants whose names hold a text, in an order. What it returns does not
// change any more.
func (s *survey) list(order, holds string) census {
	s.mu.Lock()
	c := census{known: len(s.rows), whole: s.whole}
	for name, row := range s.rows {
		if strings.Contains(name, holds) {
			c.rows = append(c.rows, row)
		}
	}
	s.mu.Unlock()
	by := tenantOrders[order]
	slices.SortFunc(c.rows, func(a, b *surveyed) int {
		if d := by(a, b); d != 0 {
			return d
		}
		return strings.Compare(a.Tenant, b.Tenant)
	})
	return c
}
