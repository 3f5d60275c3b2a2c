package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/human"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
)

func (c *console) limitsShow() *cobra.Command {
	n := 20
	cmd := &cobra.Command{
		Use: "show [LIMIT]", Short: "All limits by name, or the keys of one, the fullest first", Args: arguments(0, 1, "at most a limit by name"),
		Long: `show lists the limits by name: what waits and runs for each, and how many of its keys are paused. Of one limit it
lists the keys that jobs wait for or run, that are paused, or that have limits of their own.

It looks at a bounded part of the queue, the lanes that are due first, and says so where that is not all.`,
		Example: "  waterclock limits show\n  waterclock limits show domain -n 50",
		RunE: func(cmd *cobra.Command, args []string) error {
			if n < 1 {
				return config.Usagef("-n %d: want at least 1", n)
			}
			return c.inspect(cmd.Context(), func(i *watch.Watcher) error {
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
	t.row("LIMIT", "RULES", "KEY", "WAITING", "LANES", "RUNNING", "PAUSED", "FULLEST")
	for _, l := range now.Limits {
		fullest := "-"
		if key := l.Fullest(); key != nil {
			fullest = strings.TrimSpace(human.Percent(key.Full) + " " + key.Key)
		}
		t.row(l.Name, strings.Join(l.Rules, ", "), strings.Join(l.Key, ", "), human.Thousands(l.Waiting), human.Thousands(l.Lanes), human.Thousands(l.Running), l.Paused, fullest)
	}
	sampled(t, now)
}

// keyRows lists the keys of the only limit.
func keyRows(t *table, now queue.LimitsNow) {
	l := now.Limits[0]
	t.row("KEY", "FULL", "WAITING", "LANES", "RUNNING", "NEXT START")
	for _, k := range l.Keys {
		key := k.Key
		if len(l.Key) == 0 {
			key = "(all jobs)"
		}
		t.row(key, human.Percent(k.Full), human.Thousands(k.Waiting), human.Thousands(k.Lanes), human.Thousands(k.Running), human.NextStart(now.Now, k))
	}
	if l.Known > len(l.Keys) {
		t.row("and " + human.Count(l.Known-len(l.Keys), "key", "keys") + " more")
	}
	sampled(t, now)
}

// sampled says so if not all lanes were looked at.
func sampled(t *table, now queue.LimitsNow) {
	if !now.Whole {
		t.row("Counted among the " + human.Thousands(now.Looked) + " lanes that are due first: there are more.")
	}
}
