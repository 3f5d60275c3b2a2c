package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/human"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
)

func (c *console) whyCommand() *cobra.Command {
	id := ""
	cmd := &cobra.Command{
		Use: "why TENANT [USER] | why --job ID", Short: "Why the next job waits, and until when",
		Example: "  waterclock why school-7 teacher-42\n  waterclock why --job order-17",
		Args:    arguments(0, 2, "a tenant and a user, or --job"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (id == "") == (len(args) == 0) {
				return config.Usagef("why: want a tenant and perhaps a user, or --job ID")
			}
			return c.inspect(cmd.Context(), func(i *watch.Watcher) error {
				if id != "" {
					return c.whyJob(cmd, i, id)
				}
				if len(args) == 1 {
					return c.whyTenant(cmd, i, args[0])
				}
				return c.whyUser(cmd, i, args[0], args[1])
			})
		},
	}
	cmd.Flags().StringVar(&id, "job", "", "a job with an ID of its own")
	return cmd
}

// whyTenant says how long the backlog of a tenant takes, and explains the next job of the user that is due first.
func (c *console) whyTenant(cmd *cobra.Command, i *watch.Watcher, tenant string) error {
	b, err := i.Backlog(cmd.Context(), tenant)
	if err != nil {
		return err
	}
	e := queue.Explanation{}
	if b.Looked == 0 {
		c.say("Nothing of tenant %s waits.", tenant)
	} else {
		if e, err = i.Explain(cmd.Context(), tenant, b.Users[0].User); err != nil {
			return err
		}
		c.say("%s", human.Backlog(b))
		c.say("%s", human.Why(e, tenant, b.Users[0].User))
		c.say("")
	}
	return c.show(struct {
		queue.Explanation
		Backlog watch.Backlog `json:"backlog"`
	}{e, b}, func(t *table) {
		if b.Looked > 0 {
			rules(t, e)
		}
	})
}

// whyUser explains the next job of a user.
func (c *console) whyUser(cmd *cobra.Command, i *watch.Watcher, tenant, user string) error {
	e, err := i.Explain(cmd.Context(), tenant, user)
	if err != nil {
		return err
	}
	c.say("%s", human.Why(e, tenant, user))
	c.say("")
	return c.show(e, func(t *table) { rules(t, e) })
}

// whyJob says where a job is, and why it waits there.
func (c *console) whyJob(cmd *cobra.Command, i *watch.Watcher, id string) error {
	state, known, err := i.ExplainJob(cmd.Context(), id)
	switch {
	case err != nil:
		return err
	case !known:
		return fmt.Errorf("no job %s is known: only jobs with an ID of their own are, until a day after they have ended", human.Clean(id))
	case state.State != "waiting":
		c.say("Job %s %s. %s", id, human.WhatJob(state), human.Offered(state.History))
		c.say("")
		return c.show(state, func(t *table) { attempts(t, state.History) })
	}
	c.say("%s", human.WhyJob(state, fmt.Sprintf("Job %s of %s / %s", id, state.Tenant, state.User)))
	c.say("%s", human.Why(state.Explanation, state.Tenant, state.User))
	for _, a := range state.History.Attempts {
		c.say("Attempt %d started at %s, having waited %s; %s.", a.Attempt, human.Instant(a.Started), human.WaitedFor(a), human.Ended(a))
	}
	c.say("")
	return c.show(state, func(t *table) { rules(t, state.Explanation) })
}

// attempts lists what became of the attempts of a job.
func attempts(t *table, h queue.JobHistory) {
	if len(h.Attempts) == 0 {
		return
	}
	t.row("ATTEMPT", "STARTED", "WAITED", "OUTCOME")
	for _, a := range h.Attempts {
		t.row(a.Attempt, human.Instant(a.Started), human.WaitedFor(a), human.Ended(a))
	}
}

// rules lists what every rule says, each with a strip: filled is what is used.
func rules(t *table, e queue.Explanation) {
	t.row("SCOPE", "RULE", "USED", "", "ALLOWS THE NEXT", "")
	for _, r := range e.Rules {
		when, mark := human.From(e.Now, r.When), ""
		if r.When.IsZero() {
			when = "when one has ended"
		} else if r.Zone != "" && r.When.After(e.Now) {
			when += ", at " + human.Local(e.Now, r.When, r.Zone)
		}
		if e.Binding != nil && *e.Binding == r {
			mark = "◀ binds"
		}
		if r.Shadow {
			mark = "(only watched)"
		}
		if !r.Until.IsZero() {
			mark = strings.TrimSpace(mark + " override until " + human.Until(e.Now, r.Until, r.Note))
		}
		t.row(human.Scope(&r), r.Rule, strip(r), fmt.Sprintf("%d of %d left", max(0, r.Remaining), r.Limit), when, mark)
	}
}

// strip draws how much of a rule is used.
func strip(r queue.RuleState) string {
	const cells = 10
	if r.Limit < 1 {
		return ""
	}
	used := min(cells, (r.Limit-max(0, r.Remaining))*cells/r.Limit)
	return strings.Repeat("▮", used) + strings.Repeat("▯", cells-used)
}
