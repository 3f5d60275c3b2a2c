package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"golang.org/x/sync/errgroup"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

const (
	noisy      = "noisy"
	quietPause = 2 * time.Millisecond // between two jobs of quiet tenants
	quietOnes  = 20                   // tenants, who take turns
)

// runNeighbour lets quiet tenants offer 500 jobs a second between them, far below their
// limits: first by themselves, then while somebody offers a million jobs to another queue
// of the same Redis, which nobody drains, then while a noisy tenant offers as many to their
// own, then while those wait. What counts is how long the quiet ones' jobs wait. The other
// queue shows what the machine and Redis make of such a burst, without any part of ours.
func runNeighbour(ctx context.Context, b *bench) error {
	flood := b.size(1_000_000, 50_000)
	elsewhere := fmt.Sprintf("while %s jobs are offered to another queue", thousands(int64(flood)))
	during := fmt.Sprintf("while %s jobs are offered", thousands(int64(flood)))
	after := fmt.Sprintf("while %s jobs wait", thousands(int64(flood)))
	phases := []string{"alone", elsewhere, during, after}
	delays := []string{"offer to start", "acceptance to start", "start − slot"}
	rows := make([][]*row, len(delays))
	for i, delay := range delays {
		for _, phase := range phases {
			rows[i] = append(rows[i], b.row(delay+", p99, "+phase, "ms"))
		}
	}
	for range b.rounds {
		n := &neighbours{b: b, flood: flood}
		if err := n.live(ctx); err != nil {
			return err
		}
		for i := range delays {
			var p99 []string
			for phase := range phases {
				times := n.seen[i][phase].sorted()
				if len(times) == 0 {
					return fmt.Errorf("no job of a quiet tenant started %s", phases[phase])
				}
				v := quantile(times, 0.99)
				rows[i][phase].add(v)
				p99 = append(p99, figure(v))
			}
			b.note("%s, p99: %s ms", delays[i], strings.Join(p99, ", "))
		}
	}
	for _, r := range rows {
		r[1].over(r[0])
		r[2].over(r[0]).wantRatioAtMost(1.2)
		r[3].over(r[0]).wantRatioAtMost(1.2)
	}
	return nil
}

// Neighbours are the tenants of one round, and what was seen of the quiet ones.
type neighbours struct {
	b     *bench
	flood int // jobs

	mu    sync.Mutex
	phase int
	seen  [3][4]samples // by kind of delay and phase
}

// live runs workers and offers while the phases pass.
func (n *neighbours) live(ctx context.Context) error {
	b := n.b
	c := b.waterclockOn(b.addr, 2, n.policies())
	if err := b.empty(ctx); err != nil {
		return err
	}
	if err := c.prepare(ctx); err != nil {
		return err
	}
	stop, err := c.serve(ctx, n)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, within := errgroup.WithContext(ctx)
	group.Go(func() error { return n.offerQuietly(within, c) })
	group.Go(func() error {
		defer cancel()
		return n.pass(within, c)
	})
	return errors.Join(group.Wait(), stop())
}

func (n *neighbours) policies() queue.Policies {
	user := []throttle.Rule{throttle.Window(10_000, time.Minute), throttle.Spacing(time.Millisecond)}
	return queue.Policies{
		Default: "quiet",
		Policies: map[string]queue.Policy{
			"quiet": {Tenant: []throttle.Rule{throttle.Leak(100, time.Second)}, User: user},
			noisy:   {Tenant: []throttle.Rule{throttle.Leak(500, time.Second)}, User: user},
		},
		Tenants: map[string]string{noisy: noisy},
	}
}

// pass lets the phases pass.
func (n *neighbours) pass(ctx context.Context, c contender) error {
	span := n.b.span(10*time.Second, 3*time.Second)
	if err := wait(ctx, span); err != nil {
		return err
	}
	other := n.b.waterclockIn("elsewhere", n.policies())
	if err := other.prepare(ctx); err != nil {
		return err
	}
	for phase, where := range []contender{other, c} {
		n.enter(phase + 1)
		where.producers = 1 // one is what bursts, not a fleet
		if err := where.offerEach(ctx, n.flood, n.noise); err != nil {
			return err
		}
	}
	n.enter(3)
	return wait(ctx, span)
}

// noise is one job of the flood.
func (n *neighbours) noise(i int) job {
	return newJob(noisy, fmt.Sprint("user-", i%(n.flood/perLane)))
}

func (n *neighbours) enter(phase int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.phase = phase
}

// offerQuietly offers a job of a quiet tenant every two milliseconds, each by itself: one
// that takes long holds up no other.
func (n *neighbours) offerQuietly(ctx context.Context, c contender) error {
	group, ctx := errgroup.WithContext(ctx)
	tick := time.NewTicker(quietPause)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return group.Wait()
		case <-tick.C:
		}
		tenant := fmt.Sprint("quiet-", i%quietOnes)
		group.Go(func() error {
			j := newJob(tenant, fmt.Sprint("user-", i/quietOnes%10))
			j.payload = stamp(time.Now())
			if err := c.offer(ctx, []job{j}); err != nil && ctx.Err() == nil {
				return err
			}
			return nil
		})
	}
}

// ProcessTask notes how long a quiet tenant's job waited since its producer offered it,
// in the phase in which it starts.
func (n *neighbours) ProcessTask(ctx context.Context, t *asynq.Task) error {
	now := time.Now()
	info, _ := queue.FromContext(ctx)
	if info.Tenant == noisy {
		return nil
	}
	waited := now.Sub(instant(t.Payload()))
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, delay := range []time.Duration{waited, now.Sub(info.Offered), now.Sub(info.Slot)} {
		n.seen[i][n.phase].add(delay)
	}
	return nil
}
