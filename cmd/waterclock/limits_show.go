package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/human"
	"github.com/waterclock/waterclock/internal/limits"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
)

func (c *console) limitsShow() *cobra.Command {
	n := 20
	cmd := &cobra.Command{
		Use: "show [LIMIT [VALUE...]]", Short: "All limits by name, the keys of one, the fullest first, or what one key's rules say",
		Args: arguments(0, 5, "at most a limit by name and the values of its key"),
		Long: `show lists the limits by name: what waits and runs for each, and how many of its keys are paused. Of one limit it
lists the keys that jobs wait for or run, that are paused, for which an override counts, or that have limits of their own. Of
one key it says what each rule says, whether or not anything waits for it.

It looks at a bounded part of the queue, the lanes that are due first, and says so where that is not all.`,
		Example: "  waterclock limits show\n  waterclock limits show domain -n 50\n  waterclock limits show domain gmail.com",
		RunE: func(cmd *cobra.Command, args []string) error {
			if n < 1 {
				return config.Usagef("-n %d: want at least 1", n)
			}
			return c.inspect(cmd.Context(), func(i *watch.Watcher) error {
				if len(args) > 1 {
					return c.showKey(cmd.Context(), i, args[0], args[1:])
				}
				now, err := i.Limits(cmd.Context(), n)
				if err != nil {
					return err
				}
				if len(args) == 0 {
					return c.show(now, func(t *table) { limitRows(t, now) })
				}
				var names []string
				for _, l := range now.Limits {
					names = append(names, l.Name)
				}
				k := slices.Index(names, args[0])
				if k < 0 {
					return noLimit(args[0], names)
				}
				now.Limits = now.Limits[k : k+1]
				return c.show(now, func(t *table) { keyRows(t, now) })
			})
		},
	}
	cmd.Flags().IntVarP(&n, "number", "n", n, "how many keys to show")
	return cmd
}

func limitRows(t *table, now queue.LimitsNow) {
	if len(now.Limits) == 0 {
		t.row("The policies have no limits by name.")
		return
	}
	t.row("LIMIT", "RULES", "KEY", "WAITING", "LANES", "RUNNING", "PAUSED", "OVERRIDES", "FULLEST")
	for _, l := range now.Limits {
		fullest := "-"
		if key := l.Fullest(); key != nil {
			fullest = strings.TrimSpace(human.Percent(key.Full) + " " + key.Key)
		}
		t.row(l.Name, strings.Join(l.Rules, ", "), strings.Join(l.Key, ", "), human.Thousands(l.Waiting), human.Thousands(l.Lanes), human.Thousands(l.Running), l.Paused, l.Overridden, fullest)
	}
	sampled(t, now)
}

// keyRows lists the keys of the only limit.
func keyRows(t *table, now queue.LimitsNow) {
	l := now.Limits[0]
	t.row("KEY", "FULL", "WAITING", "LANES", "RUNNING", "NEXT START", "OVERRIDE")
	for _, k := range l.Keys {
		key := k.Key
		if len(l.Key) == 0 {
			key = "(all jobs)"
		}
		t.row(key, human.Percent(k.Full), human.Thousands(k.Waiting), human.Thousands(k.Lanes), human.Thousands(k.Running), human.NextStart(now.Now, k), override(now.Now, k))
	}
	if l.Known > len(l.Keys) {
		t.row("and " + human.Count(l.Known-len(l.Keys), "key", "keys") + " more")
	}
	sampled(t, now)
}

// override says until when an override counts for a key, who has set it and why.
func override(now time.Time, k queue.LimitKey) string {
	if k.Until.IsZero() {
		return ""
	}
	return "until " + human.Until(now, k.Until, k.Note)
}

// showKey says what a limit says for the values of its key.
func (c *console) showKey(ctx context.Context, i *watch.Watcher, limit string, values []string) error {
	if err := knownLimit(ctx, i, values, limit); err != nil {
		return err
	}
	k, err := i.LimitKey(ctx, limit, limits.JoinKey(values))
	if err != nil {
		return err
	}
	now, err := i.Now(ctx)
	if err != nil {
		return err
	}
	if len(k.Rules) == 0 {
		c.say("Nothing limits %s of limit %s.", k.Key, limit)
	} else {
		c.say("%s of limit %s: %s full, %s in %s, %s running. Next start: %s.", k.Key, limit, human.Percent(k.Full),
			human.Count(k.Waiting, "job waits", "jobs wait"), human.Count(k.Lanes, "lane", "lanes"), human.Thousands(k.Running), human.NextStart(now, k))
	}
	if k.Capacity > 0 {
		c.say("Its backlog has %s; capacity %s.", human.Jobs(k.Backlog), human.Thousands(k.Capacity))
	}
	if !k.Until.IsZero() {
		c.say("An override counts %s.", override(now, k))
	}
	paused, err := i.Pauses(ctx)
	if err != nil {
		return err
	}
	for _, p := range paused {
		if p.Scope == queue.ScopeLimit && p.Limit == limit && p.Key == k.Key {
			c.say("It is paused until %s.", human.Until(now, p.Until, p.Note))
		}
	}
	c.say("")
	return c.show(k, func(t *table) { rules(t, queue.Explanation{Now: now, Rules: k.Rules}) })
}

// sampled says so if not all lanes were looked at.
func sampled(t *table, now queue.LimitsNow) {
	if !now.Whole {
		t.row("Counted among the " + human.Thousands(now.Looked) + " lanes that are due first: there are more.")
	}
}
