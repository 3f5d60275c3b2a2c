package main

import (
	"context"
	"fmt"
	"maps"
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

func (c *console) steering() []*cobra.Command {
	return []*cobra.Command{
		c.pauseCommand(), c.resumeCommand(), c.cancelCommand(), c.purgeCommand(), c.reviveCommand(), c.deleteCommand(), c.limitsCommand(), c.userCommand(), c.policiesCommand(),
	}
}

// scope is what a pause is about: the queue, a tenant or a user, or a limit by name.
func (c *console) scope(args []string, limit string) string {
	switch {
	case limit != "":
		return strings.TrimSpace("limit " + limit + " " + strings.Join(args, ", "))
	case len(args) == 0:
		return "queue " + c.queue
	case len(args) == 1:
		return "tenant " + args[0]
	}
	return "user " + args[1] + " of tenant " + args[0]
}

// pauseOf returns the pause that the arguments of a command name: of the queue, of a tenant, or of a user of a tenant; or
// of the values of a limit's key.
func pauseOf(command string, args []string, limit string) (queue.Pause, error) {
	switch {
	case limit != "":
		return queue.Pause{Scope: queue.ScopeLimit, Limit: limit, Key: limits.JoinKey(args)}, nil
	case len(args) == 0:
		return queue.Pause{Scope: queue.ScopeQueue}, nil
	case len(args) == 1:
		return queue.Pause{Scope: queue.ScopeTenant, Tenant: args[0]}, nil
	case len(args) == 2:
		return queue.Pause{Scope: queue.ScopeUser, Tenant: args[0], User: args[1]}, nil
	}
	return queue.Pause{}, config.Usagef("%s: %d names; want a tenant, or a tenant and a user", command, len(args))
}

// paused reports whether there is a pause of just that scope.
func paused(ctx context.Context, i *watch.Watcher, of queue.Pause) (bool, error) {
	all, err := i.Pauses(ctx)
	return slices.ContainsFunc(all, func(p queue.Pause) bool {
		return p.Scope == of.Scope && p.Tenant == of.Tenant && p.User == of.User && p.Limit == of.Limit && p.Key == of.Key
	}), err
}

// known returns an error if there is no such limit by name, or if its key has other fields. Of a tenant it returns a note
// if no job of it is known: it may be yet to come, or its name may be misspelt.
func known(ctx context.Context, i *watch.Watcher, args []string, limit string) (note string, err error) {
	switch {
	case limit != "":
		return "", knownLimit(ctx, i, args, limit)
	case len(args) == 0:
		return "", nil
	}
	t, err := i.Tenant(ctx, args[0])
	if err != nil || t.Offered > 0 || t.Waiting > 0 {
		return "", err
	}
	return " No job of tenant " + args[0] + " is known.", nil
}

func knownLimit(ctx context.Context, i *watch.Watcher, values []string, limit string) error {
	applied, err := i.Policies(ctx)
	if err != nil {
		return err
	}
	n, err := fieldsOf(applied.Policies.Limits, limit)
	if err == nil && len(values) != n {
		return config.Usagef("limit %s has the key [%s]: want %s, not %d", limit, strings.Join(applied.Policies.Limits[limit].Key, ", "), human.Count(n, "value", "values"), len(values))
	}
	return err
}

// fieldsOf returns how many fields the key of a limit by name has.
func fieldsOf(all map[string]queue.Limit, limit string) (int, error) {
	of, there := all[limit]
	switch {
	case !there:
		return 0, noLimit(limit, slices.Sorted(maps.Keys(all)))
	}
	return len(of.Key), nil
}

func (c *console) pauseCommand() *cobra.Command {
	var length time.Duration
	until, limit := "", ""
	cmd := &cobra.Command{
		Use: "pause [TENANT [USER]]", Short: "Let nothing start for a time: of the queue, a tenant, a user or a limit",
		Example: "  waterclock pause school-7 --for 10m --reason \"their endpoint is down\"\n" +
			"  waterclock pause --limit domain gmail.com --for 10m",
		Args: arguments(0, 4, "nothing for the queue, a tenant, or a tenant and a user; with --limit the values of its key"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.steer(cmd.Context(), func(i *watch.Watcher) error {
				end, err := endOf("pause", length, until)
				if err != nil {
					return err
				}
				p, err := pauseOf("pause", args, limit)
				if err != nil {
					return err
				}
				note, err := known(cmd.Context(), i, args, limit)
				if err != nil {
					return err
				}
				if len(args) == 0 && limit == "" {
					stats, err := i.Stats(cmd.Context())
					if err != nil {
						return err
					}
					if err := c.confirm("Pause queue %s, in which %s?", c.queue, human.Count(stats.Waiting, "job waits", "jobs wait")); err != nil {
						return err
					}
				}
				p.Until = end
				if err := i.Pause(cmd.Context(), p); err != nil {
					return err
				}
				return c.done("The %s is paused until %s.%s", c.scope(args, limit), end.Format(time.RFC3339), note)
			})
		},
	}
	cmd.Flags().DurationVar(&length, "for", 0, "for how long, such as 10m")
	cmd.Flags().StringVar(&until, "until", "", "until when, such as 2026-11-23T08:00:00Z")
	cmd.Flags().StringVar(&limit, "limit", "", "a limit by name, for the values of its key that are given")
	cmd.Flags().StringVar(&c.note.Reason, "reason", "", "why, for whoever looks at pauses")
	return c.asks(cmd)
}

// endOf returns until when what a command sets lasts, by one of the two flags.
func endOf(command string, length time.Duration, until string) (time.Time, error) {
	switch {
	case (length == 0) == (until == ""):
		return time.Time{}, config.Usagef("%s: until when? Want --for 10m or --until 2026-11-23T08:00:00Z", command)
	case until == "" && length < time.Second:
		return time.Time{}, config.Usagef("%s: --for %v; want at least 1s", command, length)
	case until == "":
		return time.Now().Add(length), nil
	}
	end, err := time.Parse(time.RFC3339, until)
	if err != nil || time.Until(end) < 0 {
		return time.Time{}, config.Usagef("%s: --until %q; want an instant that is to come, such as 2026-11-23T08:00:00Z", command, until)
	}
	return end, nil
}

func (c *console) resumeCommand() *cobra.Command {
	limit := ""
	cmd := &cobra.Command{
		Use: "resume [TENANT [USER]]", Short: "Lift a pause of the queue, a tenant, a user or a limit",
		Args: arguments(0, 4, "nothing for the queue, a tenant, or a tenant and a user; with --limit the values of its key"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.steer(cmd.Context(), func(i *watch.Watcher) error {
				p, err := pauseOf("resume", args, limit)
				if err != nil {
					return err
				}
				was, err := paused(cmd.Context(), i, p)
				if err != nil {
					return err
				}
				note := ""
				if !was { // of what is paused the policies may know nothing any more
					if note, err = known(cmd.Context(), i, args, limit); err != nil {
						return err
					}
				}
				if err := i.Resume(cmd.Context(), p); err != nil {
					return err
				}
				if was {
					return c.done("The %s is not paused any more.", c.scope(args, limit))
				}
				return c.done("The %s was not paused.%s", c.scope(args, limit), note)
			})
		},
	}
	cmd.Flags().StringVar(&limit, "limit", "", "a limit by name, for the values of its key that are given")
	return cmd
}

// done says what was done.
func (c *console) done(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	return c.show(map[string]string{"done": text}, func(t *table) { t.row(text) })
}

func (c *console) cancelCommand() *cobra.Command {
	return c.withReason(&cobra.Command{
		Use: "cancel ID...", Short: "Make sure that waiting jobs never run, by the IDs that you gave them", Args: arguments(1, -1, "IDs of jobs"),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return c.steer(cmd.Context(), func(i *watch.Watcher) error {
				n := 0
				for _, id := range ids {
					cancelled, err := i.Cancel(cmd.Context(), id)
					if err != nil {
						return err
					}
					if cancelled {
						n++
					} else {
						c.say("Job %s does not wait: it has no ID of its own, has started, or has ended.", id)
					}
				}
				return c.done("%d of %d jobs are cancelled; each is dropped when its turn comes.", n, len(ids))
			})
		},
	})
}

// withReason lets a command that ends jobs note why, in their histories.
func (c *console) withReason(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&c.note.Reason, "reason", "", "why, for whoever asks what became of a job: why --job")
	return cmd
}

func (c *console) purgeCommand() *cobra.Command {
	return c.withReason(c.asks(&cobra.Command{
		Use: "purge TENANT", Short: "Drop all jobs that wait in the lanes of a tenant", Args: arguments(1, 1, "a tenant"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.steer(cmd.Context(), func(i *watch.Watcher) error {
				stats, err := i.Tenant(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				if err := c.confirm("Drop %s of tenant %s?", human.Count(stats.Waiting, "waiting job", "waiting jobs"), human.Clean(args[0])); err != nil {
					return err
				}
				n, err := i.Purge(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return c.done("%s dropped.", human.Count(n, "job was", "jobs were"))
			})
		},
	}))
}

func (c *console) reviveCommand() *cobra.Command {
	return c.deadOnes(&cobra.Command{Use: "revive", Short: "Give dead jobs all their attempts again; dead shows the entries"},
		"%s of %s jobs wait again.", (*watch.Watcher).Revive)
}

func (c *console) deleteCommand() *cobra.Command {
	return c.deadOnes(&cobra.Command{Use: "delete", Short: "Forget dead jobs for good; dead shows the entries"},
		"%s of %s jobs are deleted.", (*watch.Watcher).DeleteDead)
}

// deadOnes makes of a command one that does something with dead jobs, by their entries or
// with all of them.
func (c *console) deadOnes(cmd *cobra.Command, done string, do func(*watch.Watcher, context.Context, ...string) (int, error)) *cobra.Command {
	all, tenant, name := false, "", cmd.Use
	cmd.Use = fmt.Sprintf("%s ENTRY... | %s --all [--tenant TENANT]", name, name)
	cmd.Args = arguments(0, -1, "entries")
	cmd.RunE = func(cmd *cobra.Command, entries []string) error {
		if all == (len(entries) > 0) || tenant != "" && !all {
			return config.Usagef("%s: want entries that dead shows, or --all, perhaps with --tenant", name)
		}
		return c.steer(cmd.Context(), func(i *watch.Watcher) error {
			if all {
				found, err := dead(cmd.Context(), i, tenant)
				if err != nil {
					return err
				}
				for _, d := range found {
					entries = append(entries, d.Entry)
				}
			}
			if err := c.confirm("%s%s %s?", strings.ToUpper(name[:1]), name[1:], human.Count(len(entries), "dead job", "dead jobs")); err != nil {
				return err
			}
			n, err := do(i, cmd.Context(), entries...)
			if err != nil {
				return err
			}
			return c.done(done, human.Thousands(n), human.Thousands(len(entries)))
		})
	}
	cmd.Flags().BoolVar(&all, "all", false, "all dead jobs")
	cmd.Flags().StringVar(&tenant, "tenant", "", "with --all: only those of a tenant")
	return c.asks(cmd)
}
