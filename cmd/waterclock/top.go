package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/human"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
)

func (c *console) topCommand() *cobra.Command {
	every, frames, rows := time.Second, 0, 0
	cmd := &cobra.Command{
		Use: "top", Short: "The queue, live: rates, tenants, what binds", Args: arguments(0, 0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every < 100*time.Millisecond || rows < 1 {
				return config.Usagef("top: want --every of at least 100ms, and at least one --rows")
			}
			return c.inspect(cmd.Context(), func(i *watch.Watcher) error {
				return c.top(cmd.Context(), i, every, frames, rows)
			})
		},
	}
	cmd.Flags().DurationVar(&every, "every", time.Second, "how often to look")
	cmd.Flags().IntVar(&frames, "times", 0, "how many times; 0 until it is stopped")
	cmd.Flags().IntVar(&rows, "rows", 15, "how many tenants")
	return cmd
}

// A glance is the queue at one moment.
type glance struct {
	at      time.Time
	health  watch.Health
	stats   queue.Stats
	tenants []queue.TenantStats
}

func look(ctx context.Context, i *watch.Watcher, rows int) (g glance, err error) {
	g.at = time.Now()
	if g.health, err = i.Health(ctx); err != nil {
		return g, err
	}
	if g.stats, err = i.Stats(ctx); err != nil {
		return g, err
	}
	g.tenants, _, err = i.Tenants(ctx, 0, rows)
	return g, err
}

// top shows a glance after the other; frames of them, or until ctx ends.
func (c *console) top(ctx context.Context, i *watch.Watcher, every time.Duration, frames, rows int) error {
	before, err := look(ctx, i, rows)
	if err != nil {
		return err
	}
	for n := 0; frames == 0 || n < frames; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
		now, err := look(ctx, i, rows)
		if err != nil {
			return err
		}
		if frames != 1 {
			fmt.Fprint(c.out, "\x1b[H\x1b[2J")
		}
		if err := c.draw(before, now); err != nil {
			return err
		}
		before = now
	}
	return nil
}

// draw prints what has changed between two glances.
func (c *console) draw(before, now glance) error {
	seconds := now.at.Sub(before.at).Seconds()
	rate := func(a, b int64) string { return fmt.Sprintf("%.1f/s", float64(b-a)/seconds) }
	s, b := now.stats, before.stats
	c.say("queue %s is %s: %s", c.queue, strings.ToUpper(string(now.health.Condition)), now.health.Detail)
	c.say("offered %s   started %s   done %s   failed %s   dropped %s",
		rate(b.Offered, s.Offered), rate(b.Started, s.Started), rate(b.Done, s.Done), rate(b.Failed, s.Failed), rate(b.Dropped, s.Dropped))
	c.say("waiting %s   later %s   running %s of %s places   workers %d   dead %s",
		human.Thousands(s.Waiting), human.Thousands(s.Later), human.Thousands(s.Running), human.Thousands(now.health.Places), now.health.Workers, human.Thousands(s.DeadNow))
	c.say("%s", binding(b.Blocked, s.Blocked))
	c.say("")
	earlier := make(map[string]queue.TenantStats)
	for _, t := range before.tenants {
		earlier[t.Tenant] = t
	}
	return c.show(now.tenants, func(t *table) {
		t.row("TENANT", "WAITING", "STARTS", "DROPS", "DEAD")
		for _, tenant := range now.tenants {
			was, known := earlier[tenant.Tenant]
			if !known {
				was = tenant
			}
			t.row(tenant.Tenant, human.Thousands(tenant.Waiting), rate(was.Started, tenant.Started), rate(was.Dropped, tenant.Dropped), human.Thousands(tenant.Dead))
		}
	})
}

// binding says what has held most back between two glances.
func binding(before, now map[string]time.Duration) string {
	most, what := time.Duration(0), ""
	for rule, d := range now {
		if d-before[rule] > most {
			most, what = d-before[rule], rule
		}
	}
	if what == "" {
		return "nothing has held back what has started"
	}
	return "most is held back by " + what
}
