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

// HandlerConfig configures a handler. The zero value works. A panic in one of its functions is
// logged, and is an error of that call: the message is attempted again after one in Forget.
type HandlerConfig struct {
	// Shared says that all tenants use one account at the provider: a suspension then pauses the
	// whole queue. By default it pauses the tenant whose jobs have failed.
	Shared bool

	// Concurrency is the worker's, see [queue.WorkerConfig]. One of several providers
	// takes at most half of its places, a webhook's endpoint an eighth. Defaults to 100.
	Concurrency int

	// TrustAnswers believes a provider that calls many devices in a row bad. Set it if you know
	// that the configuration is right and the tokens are old.
	TrustAnswers bool

	// Redis keeps which of a user's devices have a message already, so that a retry goes only to
	// the others, and which message under a collapse key is the newest, so that a retry of an
	// older one does not replace it. With nil a retry goes to all devices, whatever came since.
	Redis redis.UniversalClient

	// Digests are texts for digests of several messages, by the type of their jobs; of a type without one the newest
	// message is shown.
	Digests map[string]DigestText

	// Forget is called with each target that is gone for good, so that the app deletes it. If it
	// returns an error, the job is attempted again. nil only logs that a target is gone.
	Forget func(ctx context.Context, job queue.Info, gone Target, why error) error

	// Sent is called after every attempt to send. It must not block. nil is allowed.
	Sent func(ctx context.Context, s Sent)

	// Logger gets alarms and forgotten targets, and every attempt at level debug. nil is slog.Default().
	Logger *slog.Logger

	// Registerer gets the metrics. nil keeps none.
	Registerer prometheus.Registerer
}

// Handler is [NewHandler] without any configuration.
func Handler(s Sender) asynq.Handler {
	h, err := NewHandler(s, HandlerConfig{})
	if err != nil {
		panic(err) // only a Registerer can be refused
	}
	return h
}

// NewHandler returns the handler that delivers each job's message with the sender, to
// all devices of the user, and tells the queue what became of it:
//
//   - delivered to at least one device, and nothing left to try: the job is done
//   - failed: a failed attempt, repeated after a backoff, for the devices that failed; at low
//     priority (see [queue.Retry]) if another device has the message and the provider is in trouble
//   - asked to wait, or the route is suspended: the job waits at the front of its lane; no
//     attempt counts
//   - refused: the job is dead, and kept for [queue.Inspector.Dead]
//   - all targets gone: the job is done, since no device is left
//   - a newer message with the same collapse key was sent since: the job is done, unsent
//
// An attempt that reached none of the user's devices, or repeats one that did, takes no
// place in the user's window (see [queue.RefundUser]).
//
// A payload that is not a message, and a message that has expired, are dropped unsent. For a
// message with an unknown field the attempt fails, so that a newer worker can take it. With
// several senders ([NewProviders]) each target goes to its own.
//
// Give workers a [queue.WorkerConfig.ShutdownTimeout] above the senders' timeout of 15
// seconds, so that no send is cut off whose message may have arrived.
func NewHandler(s Sender, cfg HandlerConfig) (asynq.Handler, error) {
	texts, err := parseTexts(cfg.Digests)
	if err != nil {
		return nil, err
	}
	metrics, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	cfg.Concurrency = cmp.Or(cfg.Concurrency, 100)
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	cfg.Logger = slog.New(containedLog{cfg.Logger.Handler()})
	providers, several := s.(*Providers)
	if !several {
		if providers, err = NewProviders(Provider{Sender: s}); err != nil {
			return nil, err
		}
	}
	h := &handler{
		texts: texts,
		cfg:   cfg, providers: providers, metrics: metrics,
		breakers: newBreakers(), backoffs: newBackoffs(), ledger: ledger{cfg.Redis}, newest: newest{cfg.Redis},
	}
	return h, nil
}

type handler struct {
	cfg       HandlerConfig
	providers *Providers
	breakers  *breakers
	backoffs  *backoffs
	ledger    ledger
	newest    newest
	metrics   *metrics
	texts     map[string]texts // by type of jobs
}

var (
	errNoCause  = errors.New("notify: the sender gave no cause")
	errDoubtful = errors.New("notify: the provider calls too many devices in a row bad; a wrong configuration is more likely")
	errBusy     = errors.New("notify: the provider's or endpoint's share of the worker's places is taken")
	errNoWayOut = errors.New("notify: this worker reaches nobody; another one gets its messages")
	errClosed   = errors.New("notify: the route to the provider or endpoint is suspended")
)

// unknownWait is until another attempt at a message with a field that this worker does not
// know: while workers are upgraded one by one a newer one may get it.
const unknownWait = 30 * time.Second

// ProcessTask delivers one job's message.
func (h *handler) ProcessTask(ctx context.Context, t *asynq.Task) error {
	info, _ := queue.FromContext(ctx)
	ctx = withClock(ctx, info.Started)
	m, err := ParseMessage(t.Payload())
	if err == nil {
		err = m.expired(clockNow(ctx))
	}
	if err != nil && isUnknown(err) {
		return h.answer(ctx, info, verdict{ending: retry, wait: unknownWait, least: patience(info.Attempt), err: err, refund: true})
	}
	if err != nil {
		return h.answer(ctx, info, verdict{ending: dead, err: err, refund: true})
	}
	m = h.digest(m, info)
	m.ID = cmp.Or(info.ID, m.ID)
	d := &delivery{handler: h, m: m, info: info, visit: make(visit)}
	v, err := d.run(ctx)
	if err != nil {
		return queue.RefundUser{Err: err}
	}
	return h.answer(ctx, info, v)
}

// answer is the verdict in the words of the queue.
func (h *handler) answer(ctx context.Context, job queue.Info, v verdict) error {
	err := v.err
	switch {
	case v.ending == retry:
		err = v.again()
	case v.ending == wait:
		err = h.pause(ctx, job, v)
	case v.ending == dead:
		err = fmt.Errorf("%w: %w", v.err, asynq.SkipRetry)
	case v.err != nil:
		err = fmt.Errorf("%w: %w", v.err, asynq.RevokeTask)
	case v.refund:
		err = asynq.RevokeTask // done, and the user's slot goes back
	}
	if v.refund {
		err = queue.RefundUser{Err: err}
	}
	if v.elsewhere > 0 && (v.ending == retry || v.ending == wait) {
		err = queue.SendOn{For: v.elsewhere, Err: err}
	}
	return err
}

// pause pauses what the message waits for: the key of a limit by name that counts it, if there is one. Otherwise all
// wait who go through the suspended provider, or the user, if other messages go elsewhere.
func (h *handler) pause(ctx context.Context, job queue.Info, v verdict) queue.Pause {
	p := queue.Pause{Scope: queue.ScopeUser, Until: clockNow(ctx).Add(v.wait), Cause: v.err}
	if limit, ok := h.limitBy(v.key, job); ok {
		p.Scope, p.Limit, p.Key = queue.ScopeLimit, limit.Limit, limit.Key
	} else if all := h.shared(); v.whole && all != "" {
		p.Scope = all
	} else {
		p.Until = clockNow(ctx).Add(v.delay())
	}
	return p
}

// shared returns the scope of everything that goes through a suspended provider, or "" where other
// messages go elsewhere.
func (h *handler) shared() queue.Scope {
	switch p := h.providers.list; {
	case len(p) > 1 || p[0].hasOrigins():
		return ""
	case h.cfg.Shared:
		return queue.ScopeQueue
	}
	return queue.ScopeTenant
}

// expired returns an error if the message has no point any more.
func (m Message) expired(now time.Time) error {
	if m.Expires.IsZero() || !now.After(m.Expires) {
		return nil
	}
	return fmt.Errorf("notify: the message expired %v before its start", now.Sub(m.Expires).Round(time.Millisecond))
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
