package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/human"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

func (c *console) checking() []*cobra.Command {
	return []*cobra.Command{c.checkCommand(), c.doctorCommand(), c.verifyCommand(), c.planCommand(), c.serveCommand()}
}

func (c *console) checkCommand() *cobra.Command {
	var most time.Duration
	var waiting int64
	cmd := &cobra.Command{
		Use: "check", Short: "For monitors: exit with 1 if the queue is stalled, or jobs are overdue",
		Args: arguments(0, 0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.inspect(cmd.Context(), func(i *queue.Inspector) error {
				h, err := i.Health(cmd.Context())
				if err != nil {
					return err
				}
				text := fmt.Sprintf("queue %s is %s: %s", c.queue, h.Condition, h.Detail)
				if err := c.show(h, func(t *table) { t.row(text) }); err != nil {
					return err
				}
				switch {
				case h.Condition == queue.Stalled:
					return fmt.Errorf("the queue is stalled")
				case h.Overdue > 0 && h.Oldest > most:
					return fmt.Errorf("a job of %d tenants is overdue, the first for %s; at most %s are allowed", h.Overdue, human.Span(h.Oldest), human.Span(most))
				case waiting >= 0 && h.Waiting > waiting:
					return fmt.Errorf("%s jobs wait; at most %s are allowed", human.Thousands(h.Waiting), human.Thousands(waiting))
				}
				return nil
			})
		},
	}
	cmd.Flags().DurationVar(&most, "max-overdue", 5*time.Second, "for how long a job may be due before it starts")
	cmd.Flags().Int64Var(&waiting, "max-waiting", -1, "how many jobs may wait; -1 for any number")
	return cmd
}

// A finding is one thing that doctor looked at.
type finding struct {
	What string `json:"what"`
	Seen string `json:"seen"`
	Bad  string `json:"problem,omitempty"` // why that is no good, and what would be right
}

func (c *console) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Look for what is wrong with Redis, the workers and the queue", Args: arguments(0, 0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withRedis(cmd.Context(), func(rdb *config.Redis) error {
				inspector, err := queue.NewInspector(rdb, c.queue)
				if err != nil {
					return err
				}
				findings := examineRedis(cmd.Context(), rdb)
				more, err := examineQueue(cmd.Context(), inspector)
				if err != nil {
					return err
				}
				findings = append(findings, more...)
				bad := 0
				for _, f := range findings {
					if f.Bad != "" {
						bad++
					}
				}
				if err := c.show(findings, func(t *table) {
					for _, f := range findings {
						mark := "ok"
						if f.Bad != "" {
							mark = "!!"
						}
						t.row(mark, f.What, f.Seen, f.Bad)
					}
				}); err != nil {
					return err
				}
				if bad > 0 {
					return fmt.Errorf("%d of %d things need a look", bad, len(findings))
				}
				return nil
			})
		},
	}
}

// examineRedis looks at the server: what it is, and whether it may forget.
func examineRedis(ctx context.Context, rdb *config.Redis) (all []finding) {
	for _, warning := range rdb.Warnings {
		all = append(all, finding{"Redis", rdb.Address, warning})
	}
	info := infoOf(ctx, rdb)
	name := "Redis"
	if info["valkey_version"] != "" {
		name = "Valkey " + info["valkey_version"] + ", as Redis"
	}
	all = append(all, finding{What: "server", Seen: name + " " + info["redis_version"] + " at " + rdb.Address})
	eviction := finding{What: "eviction", Seen: info["maxmemory_policy"]}
	if p := info["maxmemory_policy"]; p != "" && p != "noeviction" {
		eviction.Bad = "a full Redis deletes jobs and limits; want maxmemory-policy noeviction"
	}
	persistence := finding{What: "persistence", Seen: "AOF " + onOff(info["aof_enabled"]) + ", last snapshot " + info["rdb_last_bgsave_status"]}
	switch {
	case info["aof_enabled"] == "1" && info["aof_last_write_status"] == "err":
		persistence.Bad = "the AOF cannot be written; look at Redis's log and the disk"
	case info["aof_enabled"] == "0":
		persistence.Bad = "after a crash of Redis accepted jobs are lost; want appendonly yes (see docs/operations.md)"
	}
	memory := finding{What: "memory", Seen: info["used_memory_human"] + " of " + info["maxmemory_human"]}
	used, _ := strconv.ParseFloat(info["used_memory"], 64)
	most, _ := strconv.ParseFloat(info["maxmemory"], 64)
	switch {
	case most == 0:
		memory.Seen = info["used_memory_human"] + ", without a bound"
	case used > .7*most:
		memory.Bad = "more than 70 % are used; a full Redis refuses offers"
	}
	all = append(all, eviction, persistence, memory)
	if info["role"] == "slave" || info["role"] == "replica" {
		all = append(all, finding{"replication", "this is a replica", "the queue needs the master"})
	}
	before := time.Now()
	now, err := rdb.Time(ctx).Result()
	trip := time.Since(before)
	clock := finding{What: "clock", Seen: fmt.Sprintf("%s off this machine's, round trip %s", human.Span(now.Sub(before.Add(trip/2))), human.Span(trip))}
	if err != nil {
		clock = finding{"clock", "unknown", err.Error()}
	} else if off := now.Sub(before.Add(trip / 2)).Abs(); off > time.Minute {
		clock.Bad = "limits go by Redis's clock; NotBefore and StartBy of producers go by theirs: set one of them"
	}
	return append(all, clock)
}

func onOff(flag string) string {
	if flag == "1" {
		return "on"
	}
	return "off"
}

// infoOf reads what the server says of itself.
func infoOf(ctx context.Context, rdb *config.Redis) map[string]string {
	fields := make(map[string]string)
	text, _ := rdb.Info(ctx).Result()
	for _, line := range strings.Split(text, "\n") {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// examineQueue looks at the workers and at what waits.
func examineQueue(ctx context.Context, i *queue.Inspector) (all []finding, err error) {
	h, err := i.Health(ctx)
	if err != nil {
		return nil, err
	}
	condition := finding{What: "queue", Seen: string(h.Condition) + ": " + h.Detail}
	switch h.Condition {
	case queue.Stalled:
		condition.Bad = "start a worker, or look at the workers' logs"
	case queue.Starved:
		condition.Bad = "add workers or --concurrency, or limit the concurrency of the tenant that holds the places (see running)"
	}
	all = append(all, condition)
	workers, err := i.Workers(ctx)
	if err != nil {
		return nil, err
	}
	if len(workers) == 0 {
		all = append(all, finding{"workers", "none", "nothing starts without one"})
	}
	for _, w := range workers {
		f := finding{What: "worker " + w.Worker, Seen: fmt.Sprintf("%s, %d of %d places taken, clock known to %s", w.Host, w.Running, w.Places, human.Span(w.Doubt))}
		switch {
		case !w.Alive:
			f.Bad = "it is lost; its jobs come back"
		case w.Doubt > 20*time.Millisecond:
			f.Bad = "it is far from Redis, or short of CPU: it starts jobs late; want some milliseconds"
		}
		all = append(all, f)
	}
	policies, err := i.PoliciesInForce(ctx)
	if err != nil {
		return nil, err
	}
	limits := finding{What: "policies", Seen: "in force since " + policies.Since.Format(time.RFC3339)}
	if policies.Version == 0 {
		limits = finding{"policies", "none", "nothing is limited; see policies apply, or worker --policies"}
	}
	stats, err := i.Stats(ctx)
	if err != nil {
		return nil, err
	}
	deadJobs := finding{What: "dead jobs", Seen: human.Thousands(stats.Dead) + " since the beginning"}
	return append(all, limits, deadJobs), nil
}

func (c *console) verifyCommand() *cobra.Command {
	file := ""
	cmd := &cobra.Command{
		Use: "verify LOG...", Short: "Prove from the logs of workers that the limits were kept",
		Long: `verify reads the lines that worker --sender log wrote, and the policies that were in force, and
checks every start. It shares no code with what decides. Windows and spacings are checked on
the starts, leaks on the slots. It needs no Redis.`,
		Example: "  waterclock verify --policies policies.yaml deliveries-1.jsonl deliveries-2.jsonl",
		Args:    arguments(1, -1, "the files that worker --log-file wrote"),
		RunE: func(_ *cobra.Command, logs []string) error {
			text, err := os.ReadFile(file)
			if err != nil {
				return fmt.Errorf("reading the policies: %w", err)
			}
			policies, err := queue.ParsePolicies(file, text)
			if err != nil {
				return err
			}
			starts, err := readLogs(logs)
			if err != nil {
				return err
			}
			broken := check(starts, policies)
			slices.SortFunc(broken, func(a, b throttle.Violation) int { return a.At.Compare(b.At) })
			for _, v := range broken {
				fmt.Fprintln(c.out, human.Clean(v.String()))
			}
			summarize(c.out, starts)
			if len(broken) > 0 {
				return fmt.Errorf("%d starts broke a limit", len(broken))
			}
			fmt.Fprintln(c.out, "every limit was kept")
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "policies", "policies.yaml", "the policies that were in force")
	return cmd
}
