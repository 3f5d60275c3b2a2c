package otel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/waterclock/waterclock/queue"
)

// A Client offers jobs with a span around each call.
type Client struct {
	telemetry *Telemetry
	client    *queue.Client
	queue     string
}

// Client returns a client that traces what another one offers to the queue of that name.
func (t *Telemetry) Client(client *queue.Client, queue string) *Client {
	return &Client{t, client, queue}
}

// Enqueue is that of [queue.Client]: the jobs carry the span of the call in their headers.
func (c *Client) Enqueue(ctx context.Context, jobs ...queue.Job) ([]queue.Receipt, error) {
	attributes := about(c.queue, "send", "send")
	ctx, span := c.telemetry.tracer.Start(ctx, "send "+c.queue, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(attributes...))
	defer span.End()
	switch {
	case len(jobs) > 1:
		span.SetAttributes(attribute.Int("messaging.batch.message_count", len(jobs)))
	case len(jobs) == 1:
		span.SetAttributes(attribute.String("waterclock.tenant", jobs[0].Tenant), attribute.String("waterclock.user", jobs[0].User))
	}
	traced := make([]queue.Job, len(jobs))
	for i, job := range jobs {
		traced[i] = c.telemetry.Inject(ctx, job)
	}
	begin := time.Now()
	receipts, err := c.client.Enqueue(ctx, traced...)
	took := time.Since(begin).Seconds()
	if err != nil {
		kind := attribute.String("error.type", errorType(err))
		span.SetAttributes(kind)
		span.SetStatus(codes.Error, err.Error())
		attributes = append(attributes, kind)
	}
	if len(receipts) == 1 {
		span.SetAttributes(attribute.String("messaging.message.id", receipts[0].ID), attribute.String("waterclock.status", string(receipts[0].Status)))
	}
	c.telemetry.sent.Add(ctx, int64(len(jobs)), metric.WithAttributes(attributes...))
	c.telemetry.sending.Record(ctx, took, metric.WithAttributes(attributes...))
	return receipts, err
}
