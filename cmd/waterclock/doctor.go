package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/doctor"
	"github.com/waterclock/waterclock/queue/watch"
)

func (c *console) doctorCommand() *cobra.Command {
	repair := false
	cmd := &cobra.Command{
		Use: "doctor", Short: "Look for what is wrong with Redis, the workers and the keys of the queue", Args: arguments(0, 0, "none"),
		Long: `doctor looks at the server, the workers and the inbox, and reads all keys of the queue for what should
not be there: keys of another type, lanes that no index names, claims of nobody, counters that do not
add up, slots further ahead than anything explains.

With --repair it mends what is safe while workers run, and says what it has mended and what is left.
What it cannot read it renames and never deletes.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withRedis(cmd.Context(), func(rdb *config.Redis) error { return c.diagnose(cmd.Context(), rdb, repair) })
		},
	}
	cmd.Flags().BoolVar(&repair, "repair", false, "mend what is safe")
	return cmd
}

// diagnose prints what the doctor finds.
func (c *console) diagnose(ctx context.Context, rdb *config.Redis, repair bool) error {
	inspector, err := watch.New(rdb.UniversalClient, c.queue)
	if err != nil {
		return err
	}
	findings := []doctor.Finding{{What: "address", Seen: rdb.Address}}
	for _, warning := range rdb.Warnings {
		findings = append(findings, doctor.Finding{What: "Redis", Seen: rdb.Address, Problem: warning})
	}
	findings = append(findings, doctor.Redis(ctx, rdb)...)
	keys, err := doctor.Keys(ctx, rdb, c.queue, repair)
	findings = append(findings, keys...)
	if err != nil {
		findings = append(findings, doctor.Finding{What: "keys", Seen: "unknown", Problem: err.Error()})
	}
	more, err := doctor.Queue(ctx, inspector)
	if err != nil { // a key that it needs may be broken: that is told above
		more = append(more, doctor.Finding{What: "queue", Seen: "unknown", Problem: err.Error()})
	}
	findings = append(append(findings, more...), doctor.Inbox(ctx, rdb, c.queue))
	bad := 0
	for _, f := range findings {
		if f.Problem != "" {
			bad++
		}
	}
	if err := c.show(findings, func(t *table) {
		for _, f := range findings {
			mark, remedy := "ok", f.Repair
			if f.Problem != "" {
				mark = "!!"
				if remedy != "" {
					remedy = "--repair: " + remedy
				}
			}
			t.row(mark, f.What, f.Seen, f.Problem, remedy)
		}
	}); err != nil {
		return err
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d things need a look", bad, len(findings))
	}
	return nil
}
