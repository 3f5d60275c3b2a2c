package main

import (
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/human"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
)

// page is which part of a list is shown.
type page struct{ from, n int }

func (p *page) flags(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().IntVarP(&p.n, "number", "n", 20, "how many to show")
	cmd.Flags().IntVar(&p.from, "from", 0, "how many to pass over")
	return cmd
}

func (p page) check() error {
	if p.n < 1 || p.from < 0 {
		return config.Usagef("-n %d --from %d: want at least 1 from 0 on", p.n, p.from)
	}
	return nil
}

func (c *console) looking() []*cobra.Command {
	return []*cobra.Command{
		c.queuesCommand(), c.statsCommand(), c.tenantsCommand(), c.usersCommand(), c.limitsCommand(), c.whyCommand(), c.laneCommand(), c.runningCommand(),
		c.laterCommand(), c.retryingCommand(), c.failuresCommand(), c.dropsCommand(), c.deadCommand(), c.workersCommand(), c.pausesCommand(), c.topCommand(), c.tailCommand(),
	}
}

func (c *console) queuesCommand() *cobra.Command {
	type state struct {
		Queue string `json:"queue"`
		watch.Health
	}
	return &cobra.Command{
		Use: "queues", Short: "All queues of this Redis, and how they are", Args: arguments(0, 0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withRedis(cmd.Context(), func(rdb *config.Redis) error {
				names, err := watch.Queues(cmd.Context(), rdb)
				if err != nil {
					return err
				}
				all := make([]state, len(names))
				for i, name := range names {
					inspector, err := watch.New(rdb, name)
					if err != nil {
						return err
					}
					h, err := inspector.Health(cmd.Context())
					if err != nil {
						return err
					}
					all[i] = state{name, h}
				}
				return c.show(all, func(t *table) {
					t.row("QUEUE", "CONDITION", "WAITING", "RUNNING", "PLACES", "WORKERS")
					for _, s := range all {
						t.row(s.Queue, s.Condition, human.Thousands(s.Waiting), human.Thousands(s.Running), human.Thousands(s.Places), s.Workers)
					}
				})
			})
		},
	}
}

func (c *console) statsCommand() *cobra.Command {
	type state struct {
		watch.Health
		Stats          queue.Stats        `json:"stats"`
		BlockedSeconds map[string]float64 `json:"blocked_seconds"`
	}
	return &cobra.Command{
		Use: "stats", Short: "The queue in numbers", Args: arguments(0, 0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.inspect(cmd.Context(), func(i *watch.Watcher) error {
				h, err := i.Health(cmd.Context())
				if err != nil {
					return err
				}
				s, err := i.Stats(cmd.Context())
				if err != nil {
					return err
				}
				blocked := make(map[string]float64)
				for rule, d := range s.Blocked {
					blocked[rule] = d.Seconds()
				}
				return c.show(state{h, s, blocked}, func(t *table) {
					t.row("queue " + c.queue + " is " + string(h.Condition) + ": " + h.Detail)
					t.row("")
					for _, line := range []struct {
						what string
						n    int64
						says string
					}{
						{"waiting", s.Waiting, "in lanes"}, {"later", s.Later, "scheduled, or between attempts"},
						{"running", s.Running, "claimed and not done yet"}, {"offered", s.Offered, "since the beginning"},
						{"started", s.Started, "attempts"}, {"done", s.Done, ""}, {"failed", s.Failed, "attempts"},
						{"dropped", s.Dropped, "see drops"}, {"dead", s.DeadNow, "see dead; " + human.Thousands(s.Dead) + " since the beginning"},
						{"duplicates", s.Duplicates, "asynq tasks whose ID a living job has"},
					} {
						t.row(line.what, human.Thousands(line.n), line.says)
					}
					for _, rule := range slices.SortedFunc(maps.Keys(s.Blocked), func(a, b string) int { return int(s.Blocked[b] - s.Blocked[a]) }) {
						t.row("held back", human.Span(s.Blocked[rule]), "by "+rule+": queue, tenants and users, all together")
					}
					for _, rule := range slices.Sorted(maps.Keys(s.Shadowed)) {
						t.row("shadow", human.Thousands(s.Shadowed[rule]), "starts that "+rule+" would have held back")
					}
				})
			})
		},
	}
}

func (c *console) tenantsCommand() *cobra.Command {
	var p page
	return p.flags(&cobra.Command{
		Use: "tenants [TENANT]", Short: "Tenants with waiting jobs, those due first before the others; or one", Args: arguments(0, 1, "at most a tenant"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.check(); err != nil {
				return err
			}
			return c.inspect(cmd.Context(), func(i *watch.Watcher) error {
				var all []queue.TenantStats
				var err error
				if len(args) == 1 {
					var one queue.TenantStats
					one, err = i.Tenant(cmd.Context(), args[0])
					all = append(all, one)
				} else {
					all, _, err = i.Tenants(cmd.Context(), p.from, p.n)
				}
				if err != nil {
					return err
				}
				return c.show(all, func(t *table) {
					t.row("TENANT", "WAITING", "STARTED", "FAILED", "DROPPED", "DEAD")
					for _, s := range all {
						t.row(s.Tenant, human.Thousands(s.Waiting), human.Thousands(s.Started), human.Thousands(s.Failed), human.Thousands(s.Dropped), human.Thousands(s.Dead))
					}
				})
			})
		},
	})
}

func (c *console) usersCommand() *cobra.Command {
	var p page
	return p.flags(&cobra.Command{
		Use: "users TENANT", Short: "Users of a tenant with waiting jobs, those due first before the others", Args: arguments(1, 1, "a tenant"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.check(); err != nil {
				return err
			}
			return c.inspect(cmd.Context(), func(i *watch.Watcher) error {
				all, err := i.Users(cmd.Context(), args[0], p.from, p.n)
				if err != nil {
					return err
				}
				return c.show(all, func(t *table) {
					t.row("USER", "WAITING")
					for _, u := range all {
						t.row(u.User, human.Thousands(u.Waiting))
					}
				})
			})
		},
	})
}

func (c *console) laneCommand() *cobra.Command {
	type job struct {
		Place    int       `json:"place"`
		Priority string    `json:"priority"`
		ID       string    `json:"id"`
		Type     string    `json:"type"`
		Offered  time.Time `json:"offered"`
		Attempt  int       `json:"attempt"`
		Bytes    int       `json:"payload_bytes"`
	}
	var p page
	return p.flags(&cobra.Command{
		Use: "lane TENANT USER", Short: "The waiting jobs of a user, in their order", Args: arguments(2, 2, "a tenant and a user"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.check(); err != nil {
				return err
			}
			return c.inspect(cmd.Context(), func(i *watch.Watcher) error {
				waiting, err := i.Lane(cmd.Context(), args[0], args[1], p.from, p.n)
				if err != nil {
					return err
				}
				all := make([]job, len(waiting))
				for k, w := range waiting {
					all[k] = job{w.Place, priorityNames[w.Priority], w.ID, w.Type, w.Offered, w.Attempt, len(w.Payload)}
				}
				now := time.Now()
				return c.show(all, func(t *table) {
					t.row("PLACE", "PRIORITY", "ID", "TYPE", "OFFERED", "ATTEMPT", "PAYLOAD")
					for _, j := range all {
						t.row(j.Place, j.Priority, j.ID, j.Type, human.From(now, j.Offered), j.Attempt, human.Thousands(j.Bytes)+" B")
					}
				})
			})
		},
	})
}

var priorityNames = map[queue.Priority]string{queue.High: "high", queue.Normal: "normal", queue.Low: "low"}

func (c *console) runningCommand() *cobra.Command {
	var p page
	newest := false
	cmd := p.flags(&cobra.Command{
		Use: "running", Short: "What runs: whose, since when, on which worker", Args: arguments(0, 0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.check(); err != nil {
				return err
			}
			return c.inspect(cmd.Context(), func(i *watch.Watcher) error {
				all, err := i.Running(cmd.Context())
				if err != nil {
					return err
				}
				if newest {
					slices.Reverse(all)
				}
				all = all[min(p.from, len(all)):min(p.from+p.n, len(all))]
				now := time.Now()
				return c.show(all, func(t *table) {
					t.row("SINCE", "TENANT", "USER", "TYPE", "ID", "ATTEMPT", "HOST")
					for _, j := range all {
						t.row(human.From(now, j.Since), j.Tenant, j.User, j.Type, j.ID, j.Attempt, j.Host)
					}
				})
			})
		},
	})
	cmd.Flags().BoolVar(&newest, "newest", false, "the newest first, and not the oldest")
	return cmd
}

func (c *console) workersCommand() *cobra.Command {
	return &cobra.Command{
		Use: "workers", Short: "The workers, who leads, and what they have", Args: arguments(0, 0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.inspect(cmd.Context(), func(i *watch.Watcher) error {
				all, err := i.Workers(cmd.Context())
				if err != nil {
					return err
				}
				now := time.Now()
				return c.show(all, func(t *table) {
					t.row("WORKER", "HOST", "SINCE", "PLACES", "RUNNING", "CLOCK", "")
					for _, w := range all {
						role := ""
						switch {
						case !w.Alive:
							role = "lost: its jobs come back"
						case w.Leads:
							role = "leads"
						}
						t.row(w.Worker, w.Host, human.From(now, w.Since), w.Places, w.Running, "±"+human.Span(w.Doubt), role)
					}
				})
			})
		},
	}
}

func (c *console) pausesCommand() *cobra.Command {
	return &cobra.Command{
		Use: "pauses", Short: "What is paused, until when, by whom and why", Args: arguments(0, 0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.inspect(cmd.Context(), func(i *watch.Watcher) error {
				all, err := i.Pauses(cmd.Context())
				if err != nil {
					return err
				}
				now := time.Now()
				return c.show(all, func(t *table) {
					t.row("SCOPE", "TENANT", "USER", "ENDS", "BY", "REASON")
					for _, p := range all {
						name, of := p.Tenant, p.User
						if p.Scope == queue.ScopeLimit {
							name, of = p.Limit, p.Key
						}
						t.row(p.Scope, name, of, human.From(now, p.Until), p.Author, p.Reason)
					}
				})
			})
		},
	}
}
