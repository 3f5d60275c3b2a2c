package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/human"
	"github.com/waterclock/waterclock/internal/policydiff"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
)

func (c *console) policiesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "policies", Short: "The limits: look at them, compare, change them",
		Args: arguments(0, 0, "get, check, diff, apply, set-tenant or history"),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.policiesGet(), c.policiesCheck(), c.policiesDiff(), c.policiesApply(), c.policiesSetTenant(), c.policiesHistory())
	return cmd
}

func (c *console) policiesGet() *cobra.Command {
	return &cobra.Command{
		Use: "get", Short: "Print the policies in force, as a file", Args: arguments(0, 0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.inspect(cmd.Context(), func(i *watch.Watcher) error {
				now, err := i.Policies(cmd.Context())
				if err != nil {
					return err
				}
				text, err := policydiff.Source(now.Policies)
				if err != nil {
					return err
				}
				if c.json {
					return c.show(map[string]any{"version": now.Version, "since": now.Since, "source": text}, nil)
				}
				overrides, err := i.Overrides(cmd.Context())
				if err != nil {
					return err
				}
				fmt.Fprintf(c.out, "# version %d, in force since %s\n", now.Version, now.Since.Format(time.RFC3339))
				if n := len(overrides); n > 0 {
					fmt.Fprintf(c.out, "# %s beside these for a time: see limits list\n", human.Count(n, "override counts", "overrides count"))
				}
				fmt.Fprint(c.out, text)
				return nil
			})
		},
	}
}

// contents reads a file; - is standard input.
func (c *console) contents(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(c.in)
	}
	return os.ReadFile(name)
}

// readPolicies reads a policy file; - is standard input.
func (c *console) readPolicies(name string) (queue.Policies, error) {
	data, err := c.contents(name)
	if err != nil {
		return queue.Policies{}, err
	}
	return queue.ParsePolicies(name, data)
}

func (c *console) policiesCheck() *cobra.Command {
	return &cobra.Command{
		Use: "check FILE", Short: "Say whether a file is right; needs no Redis", Args: arguments(1, 1, "a file, or -"),
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := c.readPolicies(args[0])
			if err != nil {
				return err
			}
			return c.done("%s is right: %s, %s named.", args[0], human.Count(len(p.Policies), "policy", "policies"), human.Count(len(p.Tenants), "tenant", "tenants"))
		},
	}
}

func (c *console) policiesDiff() *cobra.Command {
	return &cobra.Command{
		Use: "diff FILE", Short: "Show what a file would change", Args: arguments(1, 1, "a file, or -"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.inspect(cmd.Context(), func(i *watch.Watcher) error {
				p, err := c.readPolicies(args[0])
				if err != nil {
					return err
				}
				_, changes, err := c.changes(cmd.Context(), i, p)
				if err != nil {
					return err
				}
				return c.show(changes, func(t *table) { printChanges(t, changes) })
			})
		},
	}
}

// changes returns the version in force, and how policies differ from it.
func (c *console) changes(ctx context.Context, i *watch.Watcher, to queue.Policies) (int64, []string, error) {
	now, err := i.Policies(ctx)
	if err != nil {
		return 0, nil, err
	}
	changes, err := policydiff.Changes(now.Policies, to)
	return now.Version, changes, err
}

func printChanges(t *table, changes []string) {
	if len(changes) == 0 {
		t.row("Nothing changes.")
	}
	for _, line := range changes {
		t.row(line)
	}
}

func (c *console) policiesApply() *cobra.Command {
	cmd := &cobra.Command{
		Use: "apply FILE", Short: "Put a file in force, if nobody else changes the policies meanwhile", Args: arguments(1, 1, "a file, or -"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.inspect(cmd.Context(), func(i *watch.Watcher) error {
				p, err := c.readPolicies(args[0])
				if err != nil {
					return err
				}
				return c.replace(cmd.Context(), i, p)
			})
		},
	}
	cmd.Flags().StringVar(&c.note.Reason, "reason", "", "why, for the history")
	return c.asks(cmd)
}

// replace shows what changes, asks, and puts policies in force.
func (c *console) replace(ctx context.Context, i *watch.Watcher, p queue.Policies) error {
	version, changes, err := c.changes(ctx, i, p)
	if err != nil {
		return err
	}
	if len(changes) == 0 {
		return c.done("Nothing changes.")
	}
	if !c.json {
		for _, line := range changes {
			fmt.Fprintln(c.out, human.Clean(line))
		}
	}
	stats, err := i.Stats(ctx)
	if err != nil {
		return err
	}
	if err := c.confirm("Put this in force, also for %s?", human.Count(stats.Waiting, "job that waits", "jobs that wait")); err != nil {
		return err
	}
	switch err := i.ReplacePolicies(ctx, version, p); {
	case errors.Is(err, queue.ErrPoliciesChanged):
		return fmt.Errorf("%w; look at the difference again", err)
	case errors.Is(err, queue.ErrDivided):
		return fmt.Errorf("%w; want the number that it has, or none", err)
	case err != nil:
		return err
	}
	return c.done("The next start obeys the new policies.")
}

func (c *console) policiesSetTenant() *cobra.Command {
	cmd := &cobra.Command{
		Use: "set-tenant TENANT [POLICY]", Short: "Give a tenant another policy; without one, the default", Args: arguments(1, 2, "a tenant and the name of a policy"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.inspect(cmd.Context(), func(i *watch.Watcher) error {
				now, err := i.Policies(cmd.Context())
				if err != nil {
					return err
				}
				p := now.Policies
				if len(args) == 1 {
					delete(p.Tenants, args[0])
				} else if _, known := p.Policies[args[1]]; !known {
					return config.Usagef("set-tenant: there is no policy %q in force; see policies get", args[1])
				} else {
					if p.Tenants == nil {
						p.Tenants = make(map[string]string)
					}
					p.Tenants[args[0]] = args[1]
				}
				return c.replace(cmd.Context(), i, p)
			})
		},
	}
	cmd.Flags().StringVar(&c.note.Reason, "reason", "", "why, for the history")
	return c.asks(cmd)
}

func (c *console) policiesHistory() *cobra.Command {
	var p page
	return p.flags(&cobra.Command{
		Use: "history", Short: "Who changed what, when and why, the newest first", Args: arguments(0, 0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.check(); err != nil {
				return err
			}
			return c.inspect(cmd.Context(), func(i *watch.Watcher) error {
				versions, err := i.PolicyHistory(cmd.Context(), p.from+p.n+1)
				if err != nil {
					return err
				}
				all, err := policydiff.History(versions, p.from+p.n)
				if err != nil {
					return err
				}
				all = all[min(p.from, len(all)):]
				return c.show(all, func(t *table) {
					for _, v := range all {
						t.row(fmt.Sprintf("%s by %s: %s", v.Since.Format(time.RFC3339), orNobody(v.Author), v.Reason))
						for _, line := range v.Changes {
							t.row("    " + line)
						}
					}
				})
			})
		},
	})
}

func orNobody(author string) string {
	if author == "" {
		return "a worker or a program"
	}
	return author
}
