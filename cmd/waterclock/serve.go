package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/access"
	"github.com/waterclock/waterclock/queue/api"
	"github.com/waterclock/waterclock/queue/callback"
	"github.com/waterclock/waterclock/queue/dashboard"
	"github.com/waterclock/waterclock/queue/service"
	"github.com/waterclock/waterclock/queue/watch"
	"github.com/waterclock/waterclock/throttle"
	"github.com/waterclock/waterclock/throttle/limits"
)

// A serving is what serve serves, to whom.
type serving struct {
	address               string
	all                   bool
	tokenFile, tokensFile string
	limitsFile            string
	signIn                bool
	durability            queue.Durability
	tenants               watch.TenantCollectorConfig
}

func (c *console) serveCommand() *cobra.Command {
	var s serving
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve the dashboard, the HTTP API, and the numbers of the queue to Prometheus, until it is stopped",
		Long: `serve answers /metrics with what waits, runs and is overdue, the condition of the queue, and
what limits have cost; /healthz; and /readyz, which fails while Redis cannot be reached. One of
it is enough for a queue, and several may run side by side: workers serve their own numbers with
worker --http. Redis is read every five seconds at most, however often it is scraped. No metric
has a label for tenants, unless --metrics-tenants or --metrics-busiest asks for some.

/dashboard/ shows the queue in a browser, and keeps the history of its charts. With a token, in
--token-file or WATERCLOCK_TOKEN, operators who enter it there may pause, revive and change limits;
and the HTTP API is served at /v1/, too. With --tokens-file there are several tokens, each of which
may do what the file says: see docs/api.md.

It also offers the callbacks of jobs that have ended, as jobs of the queue QUEUE-callbacks.`,
		Args: arguments(0, 0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withRedis(cmd.Context(), func(rdb *config.Redis) error { return c.serve(cmd.Context(), rdb, s) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&s.address, "http", "127.0.0.1:9091", "where; :9091 for all interfaces")
	flags.StringVar(&s.tokenFile, "token-file", "", "a file with a token that may do everything")
	flags.StringVar(&s.tokensFile, "tokens-file", "", "a file of tokens, read again when it has changed; see waterclock token new")
	flags.StringVar(&s.limitsFile, "limits-file", "", "a policy file, whose limits the HTTP API decides by at /v1/decide; read again when it has changed")
	config.DurabilityFlags(flags, &s.durability)
	flags.BoolVar(&s.signIn, "sign-in", false, "show the dashboard only to those who sign in with a token that may read")
	flags.StringSliceVar(&s.tenants.Tenants, "metrics-tenants", nil, "tenants that have metrics of their own, such as school-1,school-2")
	flags.IntVar(&s.tenants.Busiest, "metrics-busiest", 0, "of how many others with most waiting there are such metrics; at most 100 tenants in all")
	flags.BoolVar(&s.all, "all", false, "all queues that there are now, and not only --queue")
	return cmd
}

func (c *console) serve(ctx context.Context, rdb *config.Redis, s serving) error {
	if err := config.CheckDurability(s.durability); err != nil {
		return err
	}
	names := []string{c.queue}
	if s.all {
		var err error
		if names, err = watch.Queues(ctx, rdb); err != nil {
			return err
		}
	}
	registry, err := registryOf(rdb, names, s.tenants)
	if err != nil {
		return err
	}
	tokens, err := config.Tokens(s.tokenFile, s.tokensFile, c.log)
	if err != nil {
		return err
	}
	monitor := service.Monitor{Metrics: registry, Ready: service.Reachable(rdb)}
	if monitor.Dashboard, err = c.dashboard(rdb, names, tokens, s.signIn); err != nil {
		return err
	}
	deciding, err := c.limits(rdb, s.limitsFile, tokens)
	if err != nil {
		return err
	}
	if monitor.API, err = c.api(api.Config{Redis: rdb, Queues: ofAll(names, s.all), Tokens: tokens, Durability: s.durability}, deciding); err != nil {
		return err
	}
	listener, err := config.Listen(s.address)
	if err != nil {
		return config.Usagef("%v", err)
	}
	c.say("serving http://%s/ for %s: /dashboard/ and /metrics", listener.Addr(), strings.Join(names, ", "))
	if tokens == nil {
		c.say("the HTTP API is not served: it needs --token-file FILE, --tokens-file FILE or WATERCLOCK_TOKEN")
	}
	relay, err := callback.NewRelay(callback.Config{Redis: rdb, Queues: ofAll(names, s.all), Logger: c.log})
	if err != nil {
		return config.Usagef("%v", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return relay.Run(ctx) })
	group.Go(func() error { return monitor.Run(ctx, listener) })
	if tokens != nil {
		group.Go(func() error { return tokens.Run(ctx) })
	}
	if deciding != nil {
		group.Go(func() error { return deciding.Run(ctx) })
	}
	return group.Wait()
}

// dashboard returns the dashboard of queues; nil if there are none.
func (c *console) dashboard(rdb *config.Redis, queues []string, tokens *access.Tokens, signIn bool) (*dashboard.Dashboard, error) {
	if signIn && tokens == nil {
		return nil, config.Usagef("--sign-in: nobody could sign in; want --tokens-file FILE or --token-file FILE, too")
	}
	if len(queues) == 0 {
		return nil, nil
	}
	board, err := dashboard.New(dashboard.Config{Redis: rdb, Queues: queues, Tokens: tokens, SignIn: signIn, Logger: c.log})
	if err != nil {
		return nil, config.Usagef("%v", err)
	}
	return board, nil
}

// api returns the HTTP API; nil without tokens.
func (c *console) api(cfg api.Config, deciding *limits.File) (http.Handler, error) {
	if cfg.Tokens == nil {
		return nil, nil
	}
	cfg.Logger = c.log
	if deciding != nil {
		cfg.Limits = deciding.Set
	}
	handler, err := api.New(cfg)
	if err != nil {
		return nil, config.Usagef("%v", err)
	}
	return handler, nil
}

// ofAll returns the names of queues as package api and package callback want them: none for all that there are.
func ofAll(names []string, all bool) []string {
	if all {
		return nil
	}
	return names
}

// limits returns the limits of a policy file, which the API decides by; nil without a file.
func (c *console) limits(rdb *config.Redis, file string, tokens *access.Tokens) (*limits.File, error) {
	switch {
	case file == "":
		return nil, nil
	case tokens == nil:
		return nil, config.Usagef("--limits-file: the HTTP API, which it is for, needs --token-file FILE, --tokens-file FILE or WATERCLOCK_TOKEN")
	}
	all, err := limits.OpenFile(file, throttle.New(throttle.NewRedisStore(rdb.UniversalClient, limits.SharedKeys)))
	if err != nil {
		return nil, config.Usagef("--limits-file: %s", strings.TrimPrefix(err.Error(), "limits: invalid file: "))
	}
	all.Logger = c.log
	return all, nil
}

// registryOf returns the metrics of queues, and of the tenants that are asked for.
func registryOf(rdb *config.Redis, names []string, tenants watch.TenantCollectorConfig) (*prometheus.Registry, error) {
	for _, name := range names {
		watcher, err := watch.New(rdb, name)
		if err != nil {
			return nil, fmt.Errorf("queue %q: %w", name, err)
		}
		tenants.Watchers = append(tenants.Watchers, watcher)
	}
	each, err := watch.NewTenantCollector(tenants)
	if err != nil {
		return nil, config.Usagef("--metrics-tenants, --metrics-busiest: %v", err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(watch.NewCollector(tenants.Watchers...), each)
	return registry, nil
}
