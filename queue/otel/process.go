package otel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/waterclock/waterclock/queue"
)

// Middleware returns a handler that has a span around each attempt of another one. It is an
// asynq.MiddlewareFunc, too.
func (t *Telemetry) Middleware(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) (err error) {
		info, _ := queue.FromContext(ctx)
		attributes := about(info.Queue, "process", "process")
		ctx, span := t.tracer.Start(ctx, "process "+info.Queue, t.options(ctx, task, info, attributes)...)
		begin := time.Now()
		defer func() {
			cause := recover()
			if cause != nil {
				err = fmt.Errorf("panic: %v", cause)
			}
			if failed(err) {
				kind := attribute.String("error.type", errorType(err))
				span.SetAttributes(kind)
				span.SetStatus(codes.Error, err.Error())
				attributes = append(attributes, kind)
			} else if err != nil {
				span.SetAttributes(attribute.String("waterclock.answer", err.Error()))
			}
			t.consumed.Add(ctx, 1, metric.WithAttributes(attributes...))
			t.processed.Record(ctx, time.Since(begin).Seconds(), metric.WithAttributes(attributes...))
			span.End()
			if cause != nil {
				panic(cause) // what becomes of the job is the worker's to say
			}
		}()
		return next.ProcessTask(ctx, task)
	})
}

// options describe the span of an attempt: a trace of its own, with a link to the offer.
func (t *Telemetry) options(ctx context.Context, task *asynq.Task, info queue.Info, attributes []attribute.KeyValue) []trace.SpanStartOption {
	options := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindConsumer), trace.WithNewRoot(), trace.WithAttributes(attributes...), trace.WithAttributes(
			attribute.String("messaging.message.id", info.ID), attribute.String("waterclock.type", info.Type), attribute.String("waterclock.tenant", info.Tenant),
			attribute.String("waterclock.user", info.User), attribute.Int("waterclock.attempt", info.Attempt),
			attribute.String("waterclock.slot", info.Slot.UTC().Format(time.RFC3339Nano)), attribute.Float64("waterclock.waited", info.Waited.Seconds()),
			attribute.Float64("waterclock.start_delay", info.Started.Sub(info.Slot).Seconds())),
	}
	offer := trace.SpanContextFromContext(t.propagator.Extract(context.WithoutCancel(ctx), propagation.MapCarrier(task.Headers())))
	if offer.IsValid() && offer.IsRemote() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: offer}))
	}
	return options
}

// pauses reports whether an error asks for a pause.
func pauses(err error) bool {
	var value queue.Pause
	var pointer *queue.Pause
	return errors.As(err, &value) || errors.As(err, &pointer)
}

// failed tells an attempt that has failed from one that is done, or that does not count.
func failed(err error) bool {
	if err == nil || errors.Is(err, asynq.RevokeTask) {
		return false
	}
	return !pauses(err) || errors.Is(err, asynq.SkipRetry)
}
