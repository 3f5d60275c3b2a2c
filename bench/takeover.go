package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

const (
	takeoverCrew = 3   // worker processes; one of them leads
	takeoverRate = 500 // starts a second, of all of them
)

// runTakeover looks when a new worker alone starts its first job, while a million lanes hold
// one. Then it lets others come, kills the process of the one that leads, and looks at when
// those that are left start jobs, by their own clocks. A leader that reads more than the
// fronts of its indexes needs seconds for that. All workers are killed after each round.
func runTakeover(ctx context.Context, b *bench) error {
	for _, s := range b.stocks() {
		cold := b.row(s.name+"; first start of a new worker alone", "ms")
		usual := b.row(s.name+"; without starts before the kill", "ms")
		killed := b.row(s.name+"; without starts after kill -9 of the leader", "ms")
		t := &takeover{b: b, c: b.waterclockIn(queueName, s.policies), s: s}
		if err := t.prepare(ctx); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", s.name, err), t.end())
		}
		for range b.rounds {
			first, err := t.begin(ctx)
			if err != nil {
				return errors.Join(fmt.Errorf("%s, a new worker: %w", s.name, err), t.end())
			}
			before, after, err := t.kill(ctx)
			if err != nil {
				return errors.Join(fmt.Errorf("%s, kill -9: %w", s.name, err), t.end())
			}
			cold.add(ms(first))
			usual.add(ms(before))
			killed.add(ms(after))
			b.note("%s: a new worker's first start after %s ms; no starts for %s ms, usually %s", s.name, figure(ms(first)), figure(ms(after)), figure(ms(before)))
		}
		cold.wantEachAtMost(1000)
		killed.wantEachAtMost(1000)
		if err := t.end(); err != nil {
			return err
		}
	}
	return nil
}

// A stock is what waits in Redis when the leader is killed.
type stock struct {
	name            string
	lanes, tenants  int
	policies        queue.Policies
	perLane, starts int           // jobs offered to each lane, and how many of all start before it is measured
	flow            func(int) job // what is offered meanwhile; nil where enough waits that is due
}

// stocks returns a million lanes of a hundred tenants, and as many of 100,000 tenants. All of
// them are due, and the rate of starts is limited; or all wait for their own rules, and what
// starts are the jobs of others among them. With --quick they are fewer, and all wait.
func (b *bench) stocks() []stock {
	lanes := b.size(1_000_000, 100_000)
	few, many := 100, lanes/10
	of := func(tenants int) string {
		return fmt.Sprintf("%s lanes of %s tenants", thousands(int64(lanes)), thousands(int64(tenants)))
	}
	one := func(p queue.Policy) queue.Policies {
		return queue.Policies{Default: "standard", Policies: map[string]queue.Policy{"standard": p}}
	}
	forAll := one(queue.Policy{})
	forAll.Queue = []throttle.Rule{throttle.Leak(takeoverRate, time.Second)}
	slowTenants := one(queue.Policy{Tenant: []throttle.Rule{throttle.Leak(1, time.Hour)}})
	slowTenants.Policies["quick"], slowTenants.Tenants = queue.Policy{}, map[string]string{}
	for i := range few {
		slowTenants.Tenants[fmt.Sprint("quick-", i)] = "quick"
	}
	waiting := []stock{
		{of(few) + ", whose users wait", lanes, few, one(queue.Policy{User: []throttle.Rule{throttle.Spacing(time.Hour)}}), 2, lanes,
			func(i int) job { return laneJob(2*lanes+i, few) }},
		{of(many) + ", which wait", lanes, many, slowTenants, 1, many,
			func(i int) job { return newJob(fmt.Sprint("quick-", i%few), fmt.Sprint("user-", i)) }},
	}
	if b.quick {
		return waiting
	}
	due := []stock{{of(few) + ", all due", lanes, few, forAll, 1, 0, nil}, {of(many) + ", all due", lanes, many, forAll, 1, 0, nil}}
	return append(due, waiting...)
}

// A takeover is a stock with a crew.
type takeover struct {
	b      *bench
	c      contender
	s      stock
	crew   []*hand
	stop   context.CancelFunc // of the flow
	flowed chan error
}

// prepare fills Redis, and begins to offer what is due among all that.
func (t *takeover) prepare(ctx context.Context) error {
	if err := errors.Join(t.b.empty(ctx), t.c.prepare(ctx)); err != nil {
		return err
	}
	n := t.s.lanes * t.s.perLane
	if err := t.c.offerEach(ctx, n, func(i int) job { return laneJob(i%t.s.lanes, t.s.tenants) }); err != nil {
		return err
	}
	if t.s.starts > 0 {
		first := newTally(t.s.starts)
		stop, err := t.b.startWorkers(ctx, fleetOn(t.b.addr, 1), first)
		if err != nil {
			return err
		}
		if err := errors.Join(first.wait(ctx), wait(ctx, 2*time.Second), stop()); err != nil {
			return err
		}
	}
	flowing, stop := context.WithCancel(ctx)
	t.stop, t.flowed = stop, make(chan error, 1)
	go func() { t.flowed <- t.flow(flowing) }()
	return nil
}

// flow offers jobs at the rate of starts.
func (t *takeover) flow(ctx context.Context) error {
	if t.s.flow == nil {
		return nil
	}
	const pause = 10 * time.Millisecond
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for i := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		n := int(takeoverRate * pause / time.Second)
		if err := t.c.offer(ctx, someJobs(i, i+n, t.s.flow)); err != nil && ctx.Err() == nil {
			return err
		}
		i += n
	}
}

// end ends the crew, and what is offered to it.
func (t *takeover) end() error {
	for _, h := range t.crew {
		h.Kill()
	}
	if t.stop == nil {
		return nil
	}
	t.stop()
	return <-t.flowed
}

// begin kills the whole crew, and lets one worker begin when the lease of the last leader is
// over. It returns the time from there to its first start.
func (t *takeover) begin(ctx context.Context) (time.Duration, error) {
	for _, h := range t.crew {
		h.Kill()
	}
	t.crew = nil
	if err := wait(ctx, 3*time.Second); err != nil {
		return 0, err
	}
	h, err := startHand(t.b.addr)
	if err != nil {
		return 0, err
	}
	t.crew = []*hand{h}
	if err := t.flows(ctx, time.Now()); err != nil {
		return 0, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.starts[0].Sub(h.began), nil
}

// kill kills the leader of a full crew, and returns the longest times without starts of the
// others before and after.
func (t *takeover) kill(ctx context.Context) (before, after time.Duration, err error) {
	for len(t.crew) < takeoverCrew {
		h, err := startHand(t.b.addr)
		if err != nil {
			return 0, 0, err
		}
		t.crew = append(t.crew, h)
	}
	// Time enough for deputies, and the kill is at any time of their looks.
	settled := 2*time.Second + rand.N(time.Second)
	if err := wait(ctx, settled); err != nil {
		return 0, 0, err
	}
	leader, err := t.leader(ctx)
	if err != nil {
		return 0, 0, err
	}
	at := time.Now()
	t.crew[leader].Kill()
	t.crew = append(t.crew[:leader], t.crew[leader+1:]...)
	if err := t.flows(ctx, at); err != nil {
		return 0, 0, err
	}
	starts := gather(t.crew)
	return longest(starts, at.Add(-2*time.Second), at), longest(starts, at, starts[len(starts)-1]), nil
}

// leader returns which of the crew leads.
func (t *takeover) leader(ctx context.Context) (int, error) {
	workers, err := inspectorOf(t.b.client, queueName).Workers(ctx)
	if err != nil {
		return 0, err
	}
	for _, w := range workers {
		for i, h := range t.crew {
			if w.Leads && h.is(w.Host) {
				return i, nil
			}
		}
	}
	return 0, errors.New("none of the crew leads")
}

// flows waits until the crew has started jobs in each tenth of the last two seconds, all of
// them after an instant.
func (t *takeover) flows(ctx context.Context, after time.Time) error {
	const quiet, span = 100 * time.Millisecond, 2 * time.Second
	for {
		if err := wait(ctx, quiet); err != nil {
			return fmt.Errorf("the crew starts no jobs: %w", err)
		}
		now := time.Now()
		if from := now.Add(-span); from.After(after) && longest(gather(t.crew), from, now) < 2*quiet {
			return nil
		}
	}
}
