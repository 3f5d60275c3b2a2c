package main

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/human"
	"github.com/waterclock/waterclock/internal/policyfile"
	"github.com/waterclock/waterclock/queue/watch"
	"github.com/waterclock/waterclock/throttle"
)

func (c *console) checking() []*cobra.Command {
	return []*cobra.Command{c.checkCommand(), c.doctorCommand(), c.verifyCommand(), c.planCommand(), c.serveCommand(), c.tokenCommand()}
}

func (c *console) checkCommand() *cobra.Command {
	var most time.Duration
	var waiting int64
	cmd := &cobra.Command{
		Use: "check", Short: "For monitors: exit with 1 if the queue is stalled or failing, or jobs are overdue",
		Args: arguments(0, 0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.steer(cmd.Context(), func(i *watch.Watcher) error {
				h, err := i.Health(cmd.Context())
				if err != nil {
					return err
				}
				text := fmt.Sprintf("queue %s is %s: %s", c.queue, h.Condition, h.Detail)
				if err := c.show(h, func(t *table) { t.row(text) }); err != nil {
					return err
				}
				switch {
				case h.Condition == watch.Stalled || h.Condition == watch.Failing:
					return fmt.Errorf("the queue is %s", h.Condition)
				case h.Overdue > 0 && h.Oldest > most:
					return fmt.Errorf("jobs of %s are overdue, the first for %s; at most %s are allowed", human.Count(h.Overdue, "tenant", "tenants"), human.Span(h.Oldest), human.Span(most))
				case waiting >= 0 && h.Waiting > waiting:
					return fmt.Errorf("%s; at most %s may", human.Count(h.Waiting, "job waits", "jobs wait"), human.Thousands(waiting))
				}
				return nil
			})
		},
	}
	cmd.Flags().DurationVar(&most, "max-overdue", 5*time.Second, "for how long a job may be due before it starts")
	cmd.Flags().Int64Var(&waiting, "max-waiting", -1, "how many jobs may wait; -1 for any number")
	return cmd
}

func (c *console) verifyCommand() *cobra.Command {
	var file, history string
	cmd := &cobra.Command{
		Use: "verify LOG...", Short: "Prove from the logs of workers that the limits were kept",
		Long: `verify reads the lines that worker --sender log wrote, and the policies that were in force, and
checks every start. It finds the limits of a start as the queue does, and checks their rules with
code of its own. Windows and spacings are checked on the starts, leaks on the slots. It needs no Redis.

Where overrides were in force, --overrides names a file with what limits list --all --json prints: each
start is judged by the rules in force at its slot. For a second after an override was set, or ended
before its time, nothing of whom it names is judged: some starts were decided before.`,
		Example: "  waterclock verify --policies policies.yaml deliveries-1.jsonl deliveries-2.jsonl\n" +
			"  waterclock limits list --all --json > overrides.json\n" +
			"  waterclock verify --policies policies.yaml --overrides overrides.json deliveries-*.jsonl",
		Args: arguments(1, -1, "the files that worker --log-file wrote"),
		RunE: func(_ *cobra.Command, logs []string) error {
			text, err := os.ReadFile(file)
			if err != nil {
				return fmt.Errorf("--policies: %w", err)
			}
			policies, err := policyfile.Parse(file, text)
			if err != nil {
				return err
			}
			starts, err := readLogs(logs)
			if err != nil {
				return err
			}
			var overrides []pastOverride
			if history != "" {
				if text, err = c.contents(history); err == nil {
					overrides, err = overridesOf(text, policies, starts)
				}
				if err != nil {
					return fmt.Errorf("--overrides %s: %w", history, err)
				}
			}
			broken := check(starts, policies, overrides)
			slices.SortFunc(broken, func(a, b throttle.Violation) int { return a.At.Compare(b.At) })
			for _, v := range broken {
				fmt.Fprintln(c.out, human.Clean(v.String()))
			}
			summarize(c.out, starts)
			if history != "" {
				fmt.Fprintf(c.out, "%s of rules in force meanwhile\n", human.Count(len(overrides), "override", "overrides"))
			}
			if len(broken) > 0 {
				return fmt.Errorf("%s broke a limit", human.Count(len(broken), "start", "starts"))
			}
			fmt.Fprintln(c.out, "every limit was kept")
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "policies", "policies.yaml", "the policies that were in force")
	cmd.Flags().StringVar(&history, "overrides", "", "the overrides that were in force, from limits list --all --json; - is standard input")
	return cmd
}
