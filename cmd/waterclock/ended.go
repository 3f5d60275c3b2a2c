package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/human"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
)

// reasons are those of drops.
var reasons = []string{
	string(queue.ReasonFull), string(queue.ReasonRule), string(queue.ReasonExpired), string(queue.ReasonCollapsed), string(queue.ReasonImpossible),
	string(queue.ReasonCancelled), string(queue.ReasonPurged), string(queue.ReasonDuplicate), string(queue.ReasonBroken),
}

func (c *console) dropsCommand() *cobra.Command {
	var p page
	var tenant, reason string
	cmd := p.flags(&cobra.Command{
		Use: "drops", Short: "Jobs that were dropped, the newest first, and why", Args: arguments(0, 0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.check(); err != nil {
				return err
			}
			if reason != "" && !slices.Contains(reasons, reason) {
				last := len(reasons) - 1
				return config.Usagef("--reason %q: want %s or %s", reason, strings.Join(reasons[:last], ", "), reasons[last])
			}
			return c.inspect(cmd.Context(), func(i *watch.Watcher) error {
				const kept = 110_000 // that Redis keeps
				n := p.from + p.n
				if tenant != "" || reason != "" {
					n = kept
				}
				all, err := i.Drops(cmd.Context(), n)
				if err != nil {
					return err
				}
				all = slices.DeleteFunc(all, func(d queue.Drop) bool {
					return tenant != "" && d.Tenant != tenant || reason != "" && string(d.Reason) != reason
				})
				all = all[min(p.from, len(all)):min(p.from+p.n, len(all))]
				now := time.Now()
				return c.show(all, func(t *table) {
					t.row("AT", "REASON", "RULE", "TENANT", "USER", "TYPE", "ID", "ATTEMPTS")
					for _, d := range all {
						t.row(human.From(now, d.At), d.Reason, d.Rule, d.Tenant, d.User, d.Type, d.ID, d.Attempts)
					}
				})
			})
		},
	})
	cmd.Flags().StringVar(&tenant, "tenant", "", "only those of a tenant")
	cmd.Flags().StringVar(&reason, "reason", "", "only those with a reason, such as full or expired")
	return cmd
}

func (c *console) deadCommand() *cobra.Command {
	var p page
	var tenant string
	cmd := p.flags(&cobra.Command{
		Use: "dead", Short: "Jobs without attempts left, the newest first, and their last errors", Args: arguments(0, 0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.check(); err != nil {
				return err
			}
			return c.inspect(cmd.Context(), func(i *watch.Watcher) error {
				all, err := dead(cmd.Context(), i, tenant)
				if err != nil {
					return err
				}
				all = all[min(p.from, len(all)):min(p.from+p.n, len(all))]
				now := time.Now()
				return c.show(all, func(t *table) {
					t.row("ENTRY", "AT", "TENANT", "USER", "TYPE", "ID", "ATTEMPTS", "ERROR")
					for _, d := range all {
						t.row(d.Entry, human.From(now, d.At), d.Tenant, d.User, d.Type, d.ID, d.Attempts, d.Error)
					}
				})
			})
		},
	})
	cmd.Flags().StringVar(&tenant, "tenant", "", "only those of a tenant")
	return cmd
}

// dead returns the dead jobs, of a tenant or of all.
func dead(ctx context.Context, i *watch.Watcher, tenant string) ([]queue.DeadJob, error) {
	const kept = 100_000 // that Redis keeps
	all, err := i.Dead(ctx, "", kept)
	return slices.DeleteFunc(all, func(d queue.DeadJob) bool { return tenant != "" && d.Tenant != tenant }), err
}
