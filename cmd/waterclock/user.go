package main

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
)

func (c *console) userCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "user", Short: "The clock of a user: zone and quiet hours, for rules that go by them"}
	cmd.AddCommand(c.userSetCommand(), c.userShowCommand())
	return cmd
}

func (c *console) userSetCommand() *cobra.Command {
	var clock queue.UserClock
	cmd := &cobra.Command{
		Use: "set TENANT USER", Short: "Note the zone of a user, or the hours in which nothing is wanted",
		Long: `set notes the zone of a user, or the hours in which the user wants nothing, until something else is set or a job says
something else. It governs the jobs that wait already. What no flag says stays as it was; an empty value forgets it.`,
		Example: "  waterclock user set school-7 teacher-42 --zone Europe/Paris --quiet 21:30-07:00",
		Args:    arguments(2, 2, "a tenant and a user"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.steer(cmd.Context(), func(i *watch.Watcher) error {
				was, err := i.User(cmd.Context(), args[0], args[1])
				if err != nil {
					return err
				}
				if !cmd.Flags().Changed("zone") {
					clock.Zone = was.Zone
				}
				if !cmd.Flags().Changed("quiet") {
					clock.Quiet = was.Quiet
				}
				if err := i.SetUser(cmd.Context(), args[0], args[1], clock); err != nil {
					return err
				}
				return c.done("%s / %s: zone %s, quiet hours %s.", args[0], args[1], said(clock.Zone), said(clock.Quiet))
			})
		},
	}
	cmd.Flags().StringVar(&clock.Zone, "zone", "", "the zone, such as Europe/Paris")
	cmd.Flags().StringVar(&clock.Quiet, "quiet", "", "hours in which nothing is wanted, such as 21:30-07:00")
	return cmd
}

func (c *console) userShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show TENANT USER", Short: "What is known of the clock of a user",
		Example: "  waterclock user show school-7 teacher-42",
		Args:    arguments(2, 2, "a tenant and a user"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.inspect(cmd.Context(), func(i *watch.Watcher) error {
				clock, err := i.User(cmd.Context(), args[0], args[1])
				if err != nil {
					return err
				}
				return c.show(clock, func(t *table) {
					t.row("ZONE", "QUIET HOURS")
					t.row(said(clock.Zone), said(clock.Quiet))
				})
			})
		},
	}
}

// said returns what is known, or that it is as the policy says.
func said(text string) string { return cmp.Or(text, "as the policy says") }
