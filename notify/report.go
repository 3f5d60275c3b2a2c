package notify

import (
	"context"
	"log/slog"
	"time"

	"github.com/waterclock/waterclock/queue"
)

// A Sent tells of one attempt to send to one device.
type Sent struct {
	Job           queue.Info
	Provider, App string
	Device        string // a fingerprint of the target, the same for each message to it
	Action        Action
	ID            string // the provider's name for the message; empty if it gave none
	Status        int    // of HTTP; 0 without an answer
	Err           error  // nil if the message was delivered
	Latency       time.Duration
}

// report reports an attempt: to the metrics, to the log at debug, and to HandlerConfig.Sent.
func (d *delivery) report(ctx context.Context, p Provider, to Target, o Outcome, took time.Duration) {
	d.metrics.sent(p, o, took)
	s := Sent{
		Job: d.info, Provider: p.Name, App: p.App, Device: fingerprint(to),
		Action: o.Action, ID: o.ID, Status: o.Status, Err: o.Err, Latency: took,
	}
	d.cfg.Logger.DebugContext(ctx, "sent", "id", d.info.ID, "tenant", d.info.Tenant, "provider", p.String(), "device", s.Device,
		"action", o.Action, "provider_id", o.ID, "status", o.Status, "latency", took, "err", o.Err)
	if o.Action == Drop {
		d.cfg.Logger.WarnContext(ctx, "a message cannot be sent", "id", d.info.ID, "tenant", d.info.Tenant, "err", o.Err)
	}
	logPanic(ctx, d.cfg.Logger, o.Err, d.info.ID)
	if d.cfg.Sent == nil {
		return
	}
	err := contain("HandlerConfig.Sent", func() error {
		d.cfg.Sent(ctx, s)
		return nil
	})
	logPanic(ctx, d.cfg.Logger, err, d.info.ID)
}

// announce says what became of a route.
func (d *delivery) announce(ctx context.Context, p Provider, r route, o Outcome, n news, now time.Time) {
	if !n.until.IsZero() {
		d.metrics.suspended.WithLabelValues(p.String()).Set(float64(n.until.Unix()))
	}
	if !n.began && !n.warns {
		return
	}
	level, text := alarm(o, n)
	attrs := []any{"err", o.Err}
	if n.began {
		attrs = append(attrs, "for", n.until.Sub(now).Round(time.Millisecond))
	}
	if name := p.String(); name != "" { // the only one has none
		attrs = append(attrs, "provider", name)
	}
	if p.hasOrigins() {
		attrs = append(attrs, "origin", r.name)
	}
	if !d.cfg.Shared {
		attrs = append(attrs, "tenant", d.info.Tenant)
	}
	d.cfg.Logger.Log(ctx, level, text, attrs...)
}

// alarm is what to say of a route that was suspended, or of devices that are refused for our
// configuration.
func alarm(o Outcome, n news) (slog.Level, string) {
	switch f := n.finding; {
	case !n.began:
		return slog.LevelError, "the provider refuses our configuration for some devices: are the keys for Apple's devices and for browsers valid? Their messages are attempted again"
	case f == doubts:
		return slog.LevelError, "the provider calls device after device bad: is it the right project, environment or key? Sending is suspended, no token is forgotten"
	case f == fails && o.Action == Halt:
		return slog.LevelError, "the provider rejects our credentials or configuration; sending is suspended"
	}
	return slog.LevelWarn, "the provider is in trouble; sending through it is suspended"
}
