package otel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/waterclock/waterclock/queue"
)

// scope is the name under which spans and metrics come.
const scope = "github.com/waterclock/waterclock/queue/otel"

// Config says where spans and metrics go. The zero value uses OpenTelemetry's global providers.
type Config struct {
	TracerProvider trace.TracerProvider          // defaults to otel.GetTracerProvider
	MeterProvider  metric.MeterProvider          // defaults to otel.GetMeterProvider
	Propagator     propagation.TextMapPropagator // defaults to W3C trace context
}

// Telemetry traces and measures offers and attempts. It is safe for concurrent use.
type Telemetry struct {
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator

	sent, consumed     metric.Int64Counter
	sending, processed metric.Float64Histogram
}

// New returns telemetry, or the error of an instrument that the MeterProvider cannot make.
func New(cfg Config) (*Telemetry, error) {
	if cfg.TracerProvider == nil {
		cfg.TracerProvider = otel.GetTracerProvider()
	}
	if cfg.MeterProvider == nil {
		cfg.MeterProvider = otel.GetMeterProvider()
	}
	if cfg.Propagator == nil {
		cfg.Propagator = propagation.TraceContext{}
	}
	meter := cfg.MeterProvider.Meter(scope)
	seconds := metric.WithExplicitBucketBoundaries(.005, .01, .025, .05, .075, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10)
	t := &Telemetry{tracer: cfg.TracerProvider.Tracer(scope), propagator: cfg.Propagator}
	var errs [4]error
	t.sent, errs[0] = meter.Int64Counter("messaging.client.sent.messages", metric.WithUnit("{message}"), metric.WithDescription("Jobs that were offered."))
	t.consumed, errs[1] = meter.Int64Counter("messaging.client.consumed.messages", metric.WithUnit("{message}"), metric.WithDescription("Attempts that were started."))
	t.sending, errs[2] = meter.Float64Histogram("messaging.client.operation.duration", metric.WithUnit("s"), seconds, metric.WithDescription("How long offers took."))
	t.processed, errs[3] = meter.Float64Histogram("messaging.process.duration", metric.WithUnit("s"), seconds, metric.WithDescription("How long attempts took."))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("otel: %w", err)
	}
	return t, nil
}

// Inject returns the job with the span of ctx in its headers, for jobs that are offered without
// [Client.Enqueue], such as with queue.NewTask.
func (t *Telemetry) Inject(ctx context.Context, job queue.Job) queue.Job {
	headers := maps.Clone(job.Headers)
	if headers == nil {
		headers = make(map[string]string)
	}
	t.propagator.Inject(ctx, propagation.MapCarrier(headers))
	if len(headers) > 0 {
		job.Headers = headers
	}
	return job
}

// about returns the attributes that spans and metrics of an operation share.
func about(queue, name, kind string) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("messaging.system", "waterclock"), attribute.String("messaging.destination.name", queue),
		attribute.String("messaging.operation.name", name), attribute.String("messaging.operation.type", kind),
	}
}

// errorType returns what kind of error it is: the type of the innermost one.
func errorType(err error) string {
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return cmp.Or(fmt.Sprintf("%T", err), "_OTHER")
}
