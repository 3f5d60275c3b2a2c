package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/human"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
)

func (c *console) laterCommand() *cobra.Command {
	return c.waitingForTheirTime("later", "Jobs that wait for their time: scheduled, or between attempts", (*watch.Watcher).Later)
}

func (c *console) retryingCommand() *cobra.Command {
	return c.waitingForTheirTime("retrying", "Jobs that wait for their next attempt, and how the last one failed", (*watch.Watcher).Retrying)
}

// waitingForTheirTime makes a command that lists jobs that wait for their time.
func (c *console) waitingForTheirTime(name, about string, list func(*watch.Watcher, context.Context, int, int) ([]queue.LaterJob, error)) *cobra.Command {
	var p page
	return p.flags(&cobra.Command{
		Use: name, Short: about, Args: arguments(0, 0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.check(); err != nil {
				return err
			}
			return c.inspect(cmd.Context(), func(i *watch.Watcher) error {
				all, err := list(i, cmd.Context(), p.from, p.n)
				if err != nil {
					return err
				}
				now := time.Now()
				return c.show(all, func(t *table) {
					t.row("AT", "TENANT", "USER", "TYPE", "ID", "FAILED ATTEMPTS", "LAST ERROR")
					for _, j := range all {
						t.row(human.From(now, j.At), j.Tenant, j.User, j.Type, j.ID, j.Attempts, j.Error)
					}
				})
			})
		},
	})
}

func (c *console) failuresCommand() *cobra.Command {
	sample := 0
	cmd := &cobra.Command{
		Use: "failures", Short: "What fails, by the kind of the error: jobs between attempts, and dead ones", Args: arguments(0, 0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.inspect(cmd.Context(), func(i *watch.Watcher) error {
				all, err := i.Failures(cmd.Context(), sample)
				if err != nil {
					return err
				}
				now := time.Now()
				return c.show(all, func(t *table) {
					t.row("RETRYING", "DEAD", "LAST DEAD", "ERROR")
					for _, f := range all {
						t.row(human.Thousands(f.Retrying), human.Thousands(f.Dead), human.From(now, f.Last), f.Class)
					}
				})
			})
		},
	}
	cmd.Flags().IntVar(&sample, "sample", 1000, "how many jobs of each to look at")
	return cmd
}
