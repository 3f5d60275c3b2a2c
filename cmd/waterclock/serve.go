package main

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/queue/callback"
	"github.com/waterclock/waterclock/queue/service"
	"github.com/waterclock/waterclock/queue/watch"
)

func (c *console) serveCommand() *cobra.Command {
	address, all, tokenFile := "", false, ""
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve the dashboard, the HTTP API, and the numbers of the queue to Prometheus, until it is stopped",
		Long: `serve answers /metrics with what waits, runs and is overdue, the condition of the queue, and
what limits have cost; /healthz; and /readyz, which fails while Redis cannot be reached. One of
it is enough for a queue, and several may run side by side: workers serve their own numbers with worker --http. Redis is read every
five seconds at most, however often it is scraped.

/dashboard/ shows the queue in a browser, and keeps the history of its charts. With a token, in
--token-file or WATERCLOCK_TOKEN, operators who enter it there may pause, revive and change limits;
and the HTTP API is served at /v1/, too: see docs/api.md.

It also offers the callbacks of jobs that have ended, as jobs of the queue QUEUE-callbacks.`,
		Args: arguments(0, 0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withRedis(cmd.Context(), func(rdb *config.Redis) error {
				names := []string{c.queue}
				if all {
					var err error
					if names, err = watch.Queues(cmd.Context(), rdb); err != nil {
						return err
					}
				}
				collector, err := collectorOf(rdb, names)
				if err != nil {
					return err
				}
				registry := prometheus.NewRegistry()
				registry.MustRegister(collector)
				listener, err := config.Listen(address)
				if err != nil {
					return config.Usagef("%v", err)
				}
				board, err := c.dashboard(rdb, names, tokenFile)
				if err != nil {
					return err
				}
				c.say("serving http://%s/ for %s: /dashboard/ and /metrics", listener.Addr(), strings.Join(names, ", "))
				api, err := c.api(rdb, ofAll(names, all), tokenFile)
				if err != nil {
					return err
				}
				relay, err := callback.NewRelay(callback.Config{Redis: rdb, Queues: ofAll(names, all), Logger: c.log})
				if err != nil {
					return config.Usagef("%v", err)
				}
				group, ctx := errgroup.WithContext(cmd.Context())
				group.Go(func() error { return relay.Run(ctx) })
				group.Go(func() error {
					return service.Monitor{Metrics: registry, Ready: service.Reachable(rdb), API: api, Dashboard: board}.Run(ctx, listener)
				})
				return group.Wait()
			})
		},
	}
	cmd.Flags().StringVar(&address, "http", "127.0.0.1:9091", "where; :9091 for all interfaces")
	cmd.Flags().StringVar(&tokenFile, "token-file", "", "a file with the token of the HTTP API, which operators enter at the dashboard, too")
	cmd.Flags().BoolVar(&all, "all", false, "all queues that there are now, and not only --queue")
	return cmd
}

// ofAll returns the names of queues as package api and package callback want them: none for all that there are.
func ofAll(names []string, all bool) []string {
	if all {
		return nil
	}
	return names
}

func collectorOf(rdb *config.Redis, names []string) (*watch.Collector, error) {
	var inspectors []*watch.Watcher
	for _, name := range names {
		inspector, err := watch.New(rdb, name)
		if err != nil {
			return nil, fmt.Errorf("queue %q: %w", name, err)
		}
		inspectors = append(inspectors, inspector)
	}
	return watch.NewCollector(inspectors...), nil
}
