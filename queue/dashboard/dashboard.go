// Package dashboard shows queues in a browser, and lets operators steer them. It is an
// [http.Handler] that any service can mount; its pages load nothing from other hosts.
//
//	board, err := dashboard.New(dashboard.Config{Redis: rdb, Queues: []string{"push"}, Token: secret})
//	…
//	go board.Run(ctx) // keeps the charts, and tells open pages to refresh
//	mux.Handle("/dashboard/", board)
//
// Every page is rendered on the server by html/template from the answers of a [queue.Inspector],
// and works without scripts. Server-sent events tell an open page when to fetch itself again. The
// data of a page is read from Redis at most once a second, however many browsers show it, and its
// amount depends on the page and not on the queue.
//
// Everybody who reaches the dashboard can read it, so mount it where only operators come, or let
// [Config.SignIn] ask for a token. Without tokens it is read-only. With them, an operator who signs
// in with one may change what it allows.
package dashboard

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/access"
	"github.com/waterclock/waterclock/queue/watch"
	"github.com/waterclock/waterclock/throttle"
)

// Config configures a dashboard. Redis and Queues are required.
type Config struct {
	Redis  redis.UniversalClient
	Queues []string // the queues that it shows: at least one

	// Prefix is the path under which it is mounted, with a slash at both ends. Defaults to
	// "/dashboard/". Do not strip it from requests.
	Prefix string

	// Token is what operators enter to sign in, at least [access.MinLength] bytes. Without a token
	// the dashboard is read-only.
	Token string

	// Tokens are several that operators may enter, in the place of Token. One with the scope steer
	// acts, in the queues that it is for; one with the scope read looks.
	Tokens *access.Tokens

	// SignIn shows pages only to those who have signed in with a token for the queue. It needs Token or Tokens.
	SignIn bool

	// Logger gets every action: who did what, and why. nil means slog.Default().
	Logger *slog.Logger
}

// A Dashboard serves the pages. It is safe for concurrent use.
type Dashboard struct {
	cfg     Config
	log     *slog.Logger
	keys    *keys // nil if nobody can sign in
	queues  map[string]*watched
	pages   *template.Template
	assets  map[string]asset
	streams *streams
	origin  *http.CrossOriginProtection // refuses what another site makes a browser send
	tries   *throttle.Limiter           // of tokens
	handler http.Handler
}

//go:embed templates assets
var files embed.FS

// New returns a dashboard. The error says which part of the configuration is wrong.
func New(cfg Config) (*Dashboard, error) {
	if cfg.Prefix == "" {
		cfg.Prefix = "/dashboard/"
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	switch {
	case cfg.Redis == nil:
		return nil, errors.New("dashboard: Redis is nil")
	case len(cfg.Queues) == 0:
		return nil, errors.New("dashboard: Queues is empty; want at least one")
	case !strings.HasPrefix(cfg.Prefix, "/") || !strings.HasSuffix(cfg.Prefix, "/"):
		return nil, fmt.Errorf("dashboard: prefix %q; want a slash at both ends, such as /dashboard/", cfg.Prefix)
	case cfg.Token != "" && cfg.Tokens != nil:
		return nil, errors.New("dashboard: both Token and Tokens are set; want one of them")
	case cfg.SignIn && cfg.Token == "" && cfg.Tokens == nil:
		return nil, errors.New("dashboard: SignIn without a token lets nobody in; want Token or Tokens")
	}
	d := &Dashboard{
		cfg: cfg, log: cfg.Logger, queues: make(map[string]*watched), streams: newStreams(),
		origin: http.NewCrossOriginProtection(), tries: throttle.New(throttle.NewMemoryStore()),
	}
	for _, name := range cfg.Queues {
		inspector, err := watch.New(cfg.Redis, name)
		if err != nil {
			return nil, fmt.Errorf("dashboard: %w", err)
		}
		d.queues[name] = newWatched(name, inspector)
	}
	var err error
	if cfg.Token != "" {
		if cfg.Tokens, err = access.Open(access.Config{Token: cfg.Token}); err != nil {
			return nil, fmt.Errorf("dashboard: %w", err)
		}
	}
	if cfg.Tokens != nil {
		d.keys = newKeys(cfg.Tokens)
	}
	if d.assets, err = readAssets(); err != nil {
		return nil, err
	}
	if d.pages, err = template.New("").Funcs(d.functions()).ParseFS(files, "templates/*.html"); err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	d.handler = guarded(d.routes())
	return d, nil
}

// ServeHTTP implements [http.Handler].
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.handler.ServeHTTP(w, r) }

// readEvery is how often Run looks at each queue.
const readEvery = time.Second

// Run records the charts of the queues and tells open pages when to refresh, until ctx ends; it
// returns nil. Any number of dashboards may run for a queue: one reads the queue, and the others
// use the points that it has recorded. Without Run there are no new points in the charts, and
// pages refresh themselves at intervals.
func (d *Dashboard) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for _, w := range d.queues {
		all.Go(func() { w.run(ctx, d.log, d.streams) })
	}
	d.streams.open(true)
	<-ctx.Done()
	d.streams.open(false)
	all.Wait()
	return nil
}

// policy of what a page may load and do: nothing but its own files.
const contentPolicy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// guarded sets the headers that keep a browser from harm.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}
