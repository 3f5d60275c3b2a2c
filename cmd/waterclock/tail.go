package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/human"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
)

// eventKinds are the kinds of events that can be asked for.
var eventKinds = []string{
	string(watch.EventClaimed), string(watch.EventStarted), string(watch.EventDone), string(watch.EventFailed), string(watch.EventPaused), string(watch.EventDropped),
}

func (c *console) tailCommand() *cobra.Command {
	tenant, user, only, span := "", "", "", time.Duration(0)
	cmd := &cobra.Command{
		Use: "tail", Short: "What happens, as it happens: what jobs waited for, starts, ends, failures, drops", Args: arguments(0, 0, "none"),
		Long: `tail prints what happens in the queue until it is stopped, or for a time. Workers tell of claims, starts and
ends while somebody listens; they begin within some seconds. A claim says when the job was offered, and what it has waited
for. Of more than some thousand events a second of a worker it says how many were left out.`,
		Example: "  waterclock tail --tenant school-7\n  waterclock tail --tenant school-7 --user ann --for 10m --json > ann.jsonl\n  waterclock tail --only failed,dropped",
		RunE: func(cmd *cobra.Command, _ []string) error {
			for kind := range strings.SplitSeq(only, ",") {
				if only != "" && !slices.Contains(eventKinds, kind) {
					return config.Usagef("--only %q: want some of %s, separated by commas", only, strings.Join(eventKinds, ", "))
				}
			}
			if span < 0 {
				return config.Usagef("--for %v: want a time such as 10m, or 0 until it is stopped", span)
			}
			return c.inspect(cmd.Context(), func(i *watch.Watcher) error {
				ctx, cancel := context.WithCancel(cmd.Context())
				defer cancel()
				if span > 0 {
					defer time.AfterFunc(span, cancel).Stop()
				}
				return i.Tail(ctx, func(e watch.Event) error {
					wanted := e.Kind == watch.EventMissed ||
						(tenant == "" || e.Tenant == tenant) && (user == "" || e.User == user) && (only == "" || strings.Contains(","+only+",", ","+string(e.Kind)+","))
					if !wanted {
						return nil
					}
					if c.json {
						return json.NewEncoder(c.out).Encode(e)
					}
					_, err := fmt.Fprintln(c.out, human.Clean(eventLine(e)))
					return err
				})
			})
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "only those of a tenant")
	cmd.Flags().StringVar(&user, "user", "", "only those of a user")
	cmd.Flags().DurationVar(&span, "for", 0, "for how long; 0 until it is stopped")
	cmd.Flags().StringVar(&only, "only", "", "only some of "+strings.Join(eventKinds, ", ")+", separated by commas")
	return cmd
}

// eventLine writes an event for people.
func eventLine(e watch.Event) string {
	line := e.At.Local().Format("15:04:05.000") + fmt.Sprintf("  %-7s  %s / %s  %s  %s", e.Kind, e.Tenant, e.User, e.Type, e.ID)
	switch e.Kind {
	case watch.EventMissed:
		return e.At.Local().Format("15:04:05.000") + fmt.Sprintf("  …  and %s events more of %s", human.Thousands(e.Missed), e.Host)
	case watch.EventDropped:
		return line + "  " + strings.TrimSpace(string(e.Reason)+" "+e.Rule)
	case watch.EventClaimed:
		return line + fmt.Sprintf("  attempt %d, offered at %s, waited %s", e.Attempt, human.Instant(e.Offered), human.WaitedFor(queue.JobAttempt{Ready: e.Ready, Waited: e.Waited}))
	case watch.EventStarted:
		return line + fmt.Sprintf("  attempt %d", e.Attempt)
	case watch.EventFailed:
		return line + fmt.Sprintf("  attempt %d, after %s: %s", e.Attempt, human.Span(e.Took), e.Error)
	}
	return line + "  after " + human.Span(e.Took)
}
