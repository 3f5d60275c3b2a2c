// Package throttlehttp limits HTTP requests with package throttle.
//
//	limited, err := throttlehttp.New(throttlehttp.Config{
//		Limiter: throttle.New(throttle.NewRedisStore(rdb, "api")),
//		Limits: []throttlehttp.Limit{
//			{Name: "key", Key: throttlehttp.Header("Authorization"), Rules: []throttle.Rule{throttle.Window(100, time.Minute)}},
//			{Name: "address", Key: throttlehttp.Address, Rules: []throttle.Rule{throttle.TokenBucket(10, time.Second, 50)}},
//		},
//		OnTrouble: throttlehttp.Open,
//	})
//	if err != nil {
//		return err
//	}
//	http.Handle("/v1/", limited(api))
//
// One decision is made for all limits of a request: all or none are spent. Every answer has the
// fields RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers-10:
//
//	RateLimit-Policy: "key window 100/1m";q=100;w=60, "address token_bucket 10/1s burst 50";q=50;w=5
//	RateLimit: "key window 100/1m";r=12;t=3
//
// The first names every rule; the second the one that is nearest to its limit, how much is left
// of it, and after how many seconds there is more. A request over a limit gets status 429, Retry-After, which is exact but for being
// rounded up to seconds, and a problem (RFC 9457) as its body. Shadow rules decide nothing and are
// in no field.
//
// The limits may also be those of a policy file ([Config.Set]).
package throttlehttp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/waterclock/waterclock/throttle"
	"github.com/waterclock/waterclock/throttle/limits"
)

// A Limit is a set of rules for each sender of requests.
type Limit struct {
	// Name names the limit in response fields and in Redis's keys. It is required, and no two
	// limits share it.
	Name string

	// Key returns for whom the rules count, as [Address] and [Header] do; required. If it returns
	// an error or an empty text, the request is answered with status 400.
	Key func(*http.Request) (string, error)

	// Rules are those of [throttle.Subject]; at least one.
	Rules []throttle.Rule
}

// Trouble says what becomes of requests while Redis cannot be reached, or is slower than
// [Config.Timeout].
type Trouble int

const (
	_      Trouble = iota
	Open           // they are served, under no limit
	Closed         // they are refused, with status 503
)

// Config configures a middleware. OnTrouble is required, and either Limiter and Limits or Set and Fields.
type Config struct {
	Limiter *throttle.Limiter
	Limits  []Limit

	// Set are the limits of a policy file, and Fields returns what they know of a request: so one file serves
	// a queue and an HTTP server. If Fields returns an error, or lacks what a limit with missing: refuse needs, the
	// request is answered with status 400.
	Set    *limits.Set
	Fields func(*http.Request) (limits.Fields, error)

	// OnTrouble says what happens to requests that cannot be decided: Open or Closed. Required;
	// there is no safe default for every service.
	OnTrouble Trouble

	// Cost is how much a request spends, 0 means 1. nil: every request costs 1. With a Set, Fields
	// has the cost.
	Cost func(*http.Request) int

	// XRateLimit lets answers have the fields X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset, too,
	// for clients that know these: of the rule that is nearest to its limit, with Reset in seconds from now.
	XRateLimit bool

	// Timeout is how long a decision may take; after that OnTrouble applies. Defaults to 200 ms.
	// Set ContextTimeoutEnabled in the options of the Redis client: without it the client waits
	// for its own ReadTimeout.
	Timeout time.Duration

	// Logger gets warnings when OnTrouble applies. nil is slog.Default().
	Logger *slog.Logger
}

// ErrInvalidConfig is wrapped by the errors of [New].
var ErrInvalidConfig = errors.New("throttlehttp: invalid config")

// New returns a middleware, or an error wrapping [ErrInvalidConfig].
func New(cfg Config) (func(http.Handler) http.Handler, error) {
	if wrong := cfg.wrong(); wrong != "" {
		return nil, fmt.Errorf("%w: %s", ErrInvalidConfig, wrong)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 200 * time.Millisecond
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	var all []limits.Limit
	for _, l := range cfg.Limits {
		all = append(all, limits.Limit{Name: l.Name, Subject: throttle.Subject{Rules: l.Rules}})
	}
	return func(next http.Handler) http.Handler { return &handler{cfg, policyField(all), next} }, nil
}

// wrong says what is wrong with a config, and what would be right.
func (c Config) wrong() string {
	switch {
	case c.Set != nil && (c.Limiter != nil || len(c.Limits) > 0 || c.Cost != nil):
		return "Set stands beside Limiter, Limits or Cost; it has all of them"
	case c.Set != nil && c.Fields == nil:
		return "Fields is nil; want a function that returns what the limits of Set know of a request"
	case c.Set == nil && c.Fields != nil:
		return "Fields is set and Set is nil; read one with limits.FromFile"
	case c.Set == nil && c.Limiter == nil:
		return "Limiter is nil; make one with throttle.New"
	case c.Set == nil && len(c.Limits) == 0:
		return "Limits is empty; want at least one"
	case c.OnTrouble != Open && c.OnTrouble != Closed:
		return "OnTrouble is not set; want Open or Closed"
	case c.Timeout < 0:
		return fmt.Sprintf("Timeout is %v; not negative", c.Timeout)
	}
	names := make(map[string]bool)
	for i, l := range c.Limits {
		switch {
		case !isName(l.Name):
			return fmt.Sprintf("Limits[%d].Name is %q; want letters, digits, - and _", i, l.Name)
		case names[l.Name]:
			return fmt.Sprintf("Limits[%d].Name: %q is the name of two limits", i, l.Name)
		case l.Key == nil:
			return fmt.Sprintf("limit %q: Key is nil; Address and Header are two", l.Name)
		case len(l.Rules) == 0:
			return fmt.Sprintf("limit %q: Rules is empty; want at least one", l.Name)
		}
		names[l.Name] = true
		for _, rule := range l.Rules {
			if err := rule.Validate(); err != nil {
				return fmt.Sprintf("limit %q: %v", l.Name, err)
			}
		}
	}
	return ""
}

func isName(name string) bool {
	for _, r := range name {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' {
			return false
		}
	}
	return name != ""
}

type handler struct {
	Config
	policy string // RateLimit-Policy of Limits; those of a Set depend on the request
	next   http.Handler
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	all, ask, err := h.limitsOf(r)
	if err != nil {
		writeProblem(w, problem{Status: http.StatusBadRequest, Title: "Bad Request", Detail: err.Error()})
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.Timeout)
	d, err := ask(ctx)
	cancel()
	if err != nil {
		h.trouble(w, r, err)
		return
	}
	policy := h.policy
	if h.Set != nil {
		policy = policyField(all)
	}
	name := setFields(w.Header(), policy, d)
	if d.Rule != "" && h.XRateLimit {
		setXRateLimit(w.Header(), d.Decision)
	}
	if d.Outcome == throttle.Admitted {
		h.next.ServeHTTP(w, r)
		return
	}
	refuse(w, name, d.Decision)
}

// limitsOf returns the limits of a request, and what asks them. The error says what is wrong with the request.
func (h *handler) limitsOf(r *http.Request) (all []limits.Limit, ask func(context.Context) (limits.Decision, error), err error) {
	if h.Set != nil {
		fields, err := h.Fields(r)
		if err == nil {
			all, err = h.Set.Of(fields)
		}
		return all, func(ctx context.Context) (limits.Decision, error) { return h.Set.Allow(ctx, fields) }, err
	}
	subjects := make([]throttle.Subject, len(h.Limits))
	for i, l := range h.Limits {
		key, err := l.Key(r)
		if err == nil && key == "" {
			err = errors.New("the function Key returned an empty text")
		}
		if err != nil {
			return nil, nil, fmt.Errorf("limit %q: %w", l.Name, err)
		}
		subjects[i] = throttle.Subject{Key: l.Name + ":" + key, Rules: l.Rules}
		all = append(all, limits.Limit{Name: l.Name, Subject: subjects[i]})
	}
	return all, func(ctx context.Context) (limits.Decision, error) {
		cost := 1
		if h.Cost != nil {
			cost = h.Cost(r)
		}
		d, err := h.Limiter.Allow(ctx, cost, subjects...)
		name, _, _ := strings.Cut(d.Subject, ":")
		return limits.Decision{Decision: d, Limit: name}, err
	}, nil
}

func (h *handler) trouble(w http.ResponseWriter, r *http.Request, err error) {
	h.Logger.WarnContext(r.Context(), "no decision about a request", "path", r.URL.Path, "served", h.OnTrouble == Open, "err", err)
	if h.OnTrouble == Open {
		h.next.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Retry-After", "1")
	writeProblem(w, problem{
		Status: http.StatusServiceUnavailable, Title: "Service Unavailable", Detail: "The limits cannot be looked up.",
		Type: temporaryReducedCapacity,
	})
}
