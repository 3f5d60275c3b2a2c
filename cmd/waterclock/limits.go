package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/human"
	"github.com/waterclock/waterclock/internal/limits"
	"github.com/waterclock/waterclock/internal/policyfile"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
	"github.com/waterclock/waterclock/throttle"
)

func (c *console) limitsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "limits", Short: "Limits by name: how full their keys are; other rules for one value, for a time",
		Args: arguments(0, 0, "show, set, list or unset"),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.limitsShow(), c.limitsSet(), c.limitsList(), c.limitsUnset())
	return cmd
}

// noLimit says which limits by name there are, to somebody who has named another one.
func noLimit(name string, there []string) error {
	if len(there) == 0 {
		return config.Usagef("there is no limit %s: the policies have no limits by name", name)
	}
	return config.Usagef("there is no limit %s; there are %s", name, strings.Join(there, ", "))
}

const wantLimit = "queue, tenant, user or the name of a limit, then the values of its key: nothing, a tenant, a tenant and a user, …"

func (c *console) limitsSet() *cobra.Command {
	var length time.Duration
	until, concurrency, capacity := "", "", 0
	cmd := &cobra.Command{
		Use:   "set LIMIT [VALUE...] [RULE...]",
		Short: "Replace rules, concurrency or capacity of exactly one value; ends by itself",
		Example: "  waterclock limits set domain gmail.com 'leak 5/s' --for 2h --reason \"they ask us to slow down\"\n" +
			"  waterclock limits set tenant school-1 'leak 500/s' --for 2h\n" +
			"  waterclock limits set user school-1 teacher-42 'window 10/1m over=drop' 'spacing 3s' --for 2h",
		Args: arguments(1, -1, wantLimit+", then rules"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.steer(cmd.Context(), func(i *watch.Watcher) error {
				o := queue.Override{Capacity: capacity}
				if concurrency != "" {
					c, err := policyfile.ParseConcurrency(concurrency)
					if o.Concurrency = queue.Concurrency(c); err != nil {
						return config.Usagef("limits set: --concurrency %v", err)
					}
				}
				o, err := overrideOf(cmd, i, o, args)
				if err != nil {
					return err
				}
				end, err := endOf("limits set", length, until)
				if err != nil {
					return err
				}
				if o.For = length; length == 0 {
					o.Until = end
				}
				note := ""
				if o.Limit == limits.Tenant || o.Limit == limits.User {
					if note, err = known(cmd.Context(), i, o.Key, ""); err != nil {
						return err
					}
				}
				if err := i.Override(cmd.Context(), o); err != nil {
					return err
				}
				return c.done("%s until %s.%s", o, end.Format(time.RFC3339), note)
			})
		},
	}
	cmd.Flags().DurationVar(&length, "for", 0, "for how long, such as 2h")
	cmd.Flags().StringVar(&until, "until", "", "until when, such as 2026-11-23T08:00:00Z")
	cmd.Flags().StringVar(&concurrency, "concurrency", "", "how many jobs run at once, such as 20 or 25%")
	cmd.Flags().IntVar(&capacity, "capacity", 0, "how many jobs wait at most, such as 1000")
	cmd.Flags().StringVar(&c.note.Reason, "reason", "", "why, for the list and the history")
	return cmd
}

// overrideOf returns an override with what the arguments of a command say: a limit, the values of its key, and rules.
func overrideOf(cmd *cobra.Command, i *watch.Watcher, o queue.Override, args []string) (queue.Override, error) {
	o.Limit = args[0]
	n := map[string]int{limits.Queue: 0, limits.Tenant: 1, limits.User: 2}
	values, everybody := n[o.Limit]
	if !everybody {
		now, err := i.Policies(cmd.Context())
		if err != nil {
			return o, err
		}
		if values, err = fieldsOf(now.Policies.Limits, o.Limit); err != nil {
			return o, err
		}
	}
	if len(args)-1 < values {
		return o, config.Usagef("limits set: want %s of limit %s, then rules such as 'leak 5/s'", human.Count(values, "value", "values"), o.Limit)
	}
	o.Key = args[1 : 1+values]
	for _, text := range args[1+values:] {
		rule, err := throttle.ParseRule(text)
		if err != nil {
			return o, config.Usagef("limits set: %v", err)
		}
		o.Rules = append(o.Rules, rule)
	}
	if len(o.Rules) == 0 && o.Concurrency == (queue.Concurrency{}) && o.Capacity == 0 {
		return o, config.Usagef("limits set: want rules such as 'leak 5/s' behind the %s of limit %s, --concurrency or --capacity", human.Count(values, "value", "values"), o.Limit)
	}
	return o, nil
}

func (c *console) limitsUnset() *cobra.Command {
	cmd := &cobra.Command{
		Use: "unset LIMIT [VALUE...]", Short: "Let the rules of the policies count again before the time", Args: arguments(1, -1, wantLimit),
		Example: "  waterclock limits unset domain gmail.com",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.steer(cmd.Context(), func(i *watch.Watcher) error {
				was, err := i.EndOverride(cmd.Context(), args[0], args[1:]...)
				if err != nil {
					return err
				}
				if !was {
					return fmt.Errorf("limits unset: nothing is set for %s; see limits list", strings.Join(args, " "))
				}
				return c.done("%s: the rules of the policies count again.", strings.Join(args, " "))
			})
		},
	}
	cmd.Flags().StringVar(&c.note.Reason, "reason", "", "why, for the history")
	return cmd
}
