package notify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue"
)

// HandlerConfig configures a handler. The zero value works.
type HandlerConfig struct {
	// Shared says that all tenants use one account at the provider, so that a pause or a
	// halt is for the whole queue. By default it is for the tenant whose job met it.
	Shared bool

	// HaltFor is how long nothing is sent when the configuration proves wrong, until one
	// more try. Defaults to 5 minutes.
	HaltFor time.Duration

	// Redis remembers which of a user's devices have a message already, so that a retry
	// goes only to the others. Without it a retry goes to all of them.
	Redis redis.UniversalClient

	// Forget is told of a target that is gone for good, so that the app deletes it. If
	// it fails the job is attempted again. nil only logs that there was one.
	Forget func(ctx context.Context, job queue.Info, gone Target, why error) error

	// Logger gets what people should know: alarms, forgotten targets. nil is silent.
	Logger *slog.Logger

	// Registerer gets the metrics. nil keeps none.
	Registerer prometheus.Registerer
}

// A careless sender takes any payload: it does not look at the message.
type careless interface{ anyPayload() }

// Handler is [NewHandler] without any configuration.
func Handler(s Sender) asynq.Handler {
	h, err := NewHandler(s, HandlerConfig{})
	if err != nil {
		panic(err) // only a Registerer can refuse
	}
	return h
}

// NewHandler returns the handler that delivers each job's message with the sender, to
// all devices of the user, and tells the queue what became of it:
//
//   - delivered to at least one device, and nothing left to try: the job is done
//   - retry: a failed attempt, repeated after a backoff, for the devices that failed
//   - defer, pause, halt: the job waits at the front of its lane; no attempt counts
//   - dropped: the job is dead, and kept for [queue.Inspector.Dead]
//   - all targets gone: the job is done, there is nobody to deliver to
//
// An attempt that reached none of the user's devices, or repeats one that did, takes no
// place in the user's window (see [queue.RefundUser]).
//
// A payload that is not a message, and a message that has expired, are dropped unsent.
// For the log sender any payload will do.
func NewHandler(s Sender, cfg HandlerConfig) (asynq.Handler, error) {
	metrics, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	cfg.HaltFor = cmp.Or(cfg.HaltFor, 5*time.Minute)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	_, anything := s.(careless)
	return &handler{
		sender: s, cfg: cfg, anything: anything,
		routes: newRoutes(), guard: newGuard(), ledger: ledger{cfg.Redis}, metrics: metrics,
	}, nil
}

type handler struct {
	sender   Sender
	cfg      HandlerConfig
	anything bool
	routes   *routes
	guard    *guard
	ledger   ledger
	metrics  *metrics
}

var (
	errNoCause  = errors.New("notify: the sender gave no cause")
	errDoubtful = errors.New("notify: too many targets are said to be bad; the configuration is more likely to be")
	errClosed   = errors.New("notify: the provider asked for a pause")
)

// ProcessTask delivers one job's message.
func (h *handler) ProcessTask(ctx context.Context, t *asynq.Task) error {
	info, _ := queue.FromContext(ctx)
	ctx = withClock(ctx, info.Started)
	if h.anything {
		return h.asError(ctx, h.sender.Send(ctx, Message{ID: info.ID}, Target{}), false)
	}
	m, err := ParseMessage(t.Payload())
	if err != nil {
		return h.asError(ctx, Outcome{Action: Drop, Err: err}, true)
	}
	if now := clockNow(ctx); !m.Expires.IsZero() && now.After(m.Expires) {
		late := now.Sub(m.Expires).Round(time.Millisecond)
		return h.asError(ctx, Outcome{Action: Drop, Err: fmt.Errorf("notify: the message expired %v before its start", late)}, true)
	}
	m.ID = cmp.Or(info.ID, m.ID)
	d := &delivery{handler: h, m: m, info: info, route: info.Tenant}
	if h.cfg.Shared {
		d.route = ""
	}
	if until := h.routes.closed(d.route, clockNow(ctx)); !until.IsZero() {
		return h.asError(ctx, Outcome{Action: Pause, Err: errClosed, After: until.Sub(clockNow(ctx))}, true)
	}
	o, refund, err := d.run(ctx)
	if err != nil {
		return queue.RefundUser(err)
	}
	return h.asError(ctx, o, refund)
}

// asError is the outcome as the queue understands it.
func (h *handler) asError(ctx context.Context, o Outcome, refund bool) error {
	if o.Action == Done && !refund {
		return nil
	}
	err := h.verdict(ctx, o)
	if refund {
		return queue.RefundUser(err)
	}
	return err
}

func (h *handler) verdict(ctx context.Context, o Outcome) error {
	cause := o.Err
	if cause == nil {
		cause = errNoCause
	}
	until := clockNow(ctx).Add(o.After)
	switch o.Action {
	case Done:
		return asynq.RevokeTask
	case Retry:
		return queue.RetryAfter(o.After, cause)
	case Defer:
		return queue.PauseUser(until, cause)
	case Pause, Halt:
		if h.cfg.Shared {
			return queue.PauseQueue(until, cause)
		}
		return queue.PauseTenant(until, cause)
	case Drop:
		return fmt.Errorf("%w: %w", cause, asynq.SkipRetry)
	case Forget:
		return fmt.Errorf("%w: %w", cause, asynq.RevokeTask)
	}
	return fmt.Errorf("notify: unknown action %q: %w", o.Action, cause)
}

type clockKey struct{}

// A clock is Redis's, read once at the start of a job and carried on by the local one.
type clock struct{ redis, local time.Time }

func withClock(ctx context.Context, started time.Time) context.Context {
	if started.IsZero() {
		return ctx // outside of a queue's worker
	}
	return context.WithValue(ctx, clockKey{}, clock{started, time.Now()})
}

// clockNow returns the time on Redis's clock, if there is a job, since the worker's own
// may be wrong.
func clockNow(ctx context.Context) time.Time {
	if c, ok := ctx.Value(clockKey{}).(clock); ok {
		return c.redis.Add(time.Since(c.local))
	}
	return time.Now()
}
