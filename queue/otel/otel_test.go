package otel

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
)

// A scene is telemetry that keeps what it is told, and a worker.
type scene struct {
	*testing.T
	*Telemetry
	rdb     redis.UniversalClient
	spans   *tracetest.SpanRecorder
	tracer  trace.Tracer
	metrics *sdkmetric.ManualReader
	client  *Client
}

func open(t *testing.T, handler asynq.HandlerFunc) *scene {
	s := &scene{T: t, rdb: redistest.Start(t).Client(t), spans: tracetest.NewSpanRecorder(), metrics: sdkmetric.NewManualReader()}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(s.spans))
	s.tracer = provider.Tracer("test")
	var err error
	s.Telemetry, err = New(Config{TracerProvider: provider, MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.metrics))})
	s.must(err)
	client, err := queue.NewClient(s.rdb, "push")
	s.must(err)
	s.client = s.Telemetry.Client(client, "push")
	worker, err := queue.NewWorker(s.rdb, queue.WorkerConfig{Queues: []string{"push"}, Lease: time.Second, Inbox: true,
		RetryDelay: func(int, error, *asynq.Task) time.Duration { return time.Hour }})
	s.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx, s.Middleware(handler)) }()
	t.Cleanup(func() {
		cancel()
		s.must(<-done)
	})
	return s
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// ended waits for so many spans of a name.
func (s *scene) ended(name string, n int) (found []sdktrace.ReadOnlySpan) {
	s.Helper()
	redistest.Eventually(s, 20*time.Second, fmt.Sprintf("%d spans %q have ended", n, name), func() bool {
		found = nil
		for _, span := range s.spans.Ended() {
			if span.Name() == name {
				found = append(found, span)
			}
		}
		return len(found) >= n
	})
	return found
}

func value(span sdktrace.ReadOnlySpan, key attribute.Key) string {
	for _, a := range span.Attributes() {
		if a.Key == key {
			return a.Value.Emit()
		}
	}
	return ""
}

// The span of an attempt begins a trace of its own and is linked to that of the offer, which is
// a child of the caller's. The job's own headers stay.
func TestAnAttemptIsLinkedToItsOffer(t *testing.T) {
	headers := make(chan map[string]string, 1)
	inside := make(chan trace.SpanContext, 1)
	s := open(t, func(ctx context.Context, task *asynq.Task) error {
		headers <- task.Headers()
		inside <- trace.SpanContextFromContext(ctx)
		return nil
	})
	ctx, caller := s.tracer.Start(t.Context(), "request")
	given := map[string]string{"own": "header"}
	receipts, err := s.client.Enqueue(ctx, queue.Job{ID: "order-17", Tenant: "school-7", User: "teacher-42", Type: "push", Headers: given})
	s.must(err)
	caller.End()
	if len(receipts) != 1 || len(given) != 1 {
		t.Errorf("%+v, %v", receipts, given)
	}
	offer, attempt := s.ended("send push", 1)[0], s.ended("process push", 1)[0]
	if offer.Parent().SpanID() != caller.SpanContext().SpanID() || offer.SpanKind() != trace.SpanKindProducer {
		t.Errorf("the offer: %v of %v", offer.SpanKind(), offer.Parent())
	}
	links := attempt.Links()
	if len(links) != 1 || links[0].SpanContext.SpanID() != offer.SpanContext().SpanID() || links[0].SpanContext.TraceID() != offer.SpanContext().TraceID() {
		t.Errorf("links: %+v", links)
	}
	if attempt.Parent().IsValid() || attempt.SpanContext().TraceID() == offer.SpanContext().TraceID() || attempt.SpanKind() != trace.SpanKindConsumer {
		t.Errorf("the attempt belongs to %v", attempt.Parent())
	}
	if got := <-headers; got["own"] != "header" || got["traceparent"] == "" {
		t.Errorf("headers: %v", got)
	}
	if got := <-inside; got.SpanID() != attempt.SpanContext().SpanID() {
		t.Error("the handler runs outside of its span")
	}
	for key, want := range map[attribute.Key]string{
		"messaging.system": "waterclock", "messaging.destination.name": "push", "messaging.operation.name": "process", "messaging.operation.type": "process",
		"messaging.message.id": "order-17", "waterclock.tenant": "school-7", "waterclock.user": "teacher-42", "waterclock.attempt": "1",
	} {
		if got := value(attempt, key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if value(offer, "messaging.message.id") != "order-17" || value(offer, "waterclock.status") != "accepted" {
		t.Errorf("the offer: %v", offer.Attributes())
	}
}

// A task of an asynq producer is linked as well; a job without a trace has a span all the same.
func TestOtherDoors(t *testing.T) {
	s := open(t, func(context.Context, *asynq.Task) error { return nil })
	ctx, caller := s.tracer.Start(t.Context(), "request")
	task, err := queue.NewTask(s.Inject(ctx, queue.Job{Tenant: "t", User: "u", Type: "push"}))
	s.must(err)
	_, err = asynq.NewClientFromRedisClient(s.rdb).EnqueueContext(ctx, task, asynq.Queue("push"))
	s.must(err)
	if links := s.ended("process push", 1)[0].Links(); len(links) != 1 || links[0].SpanContext.SpanID() != caller.SpanContext().SpanID() {
		t.Errorf("links: %+v", links)
	}
	client, err := queue.NewClient(s.rdb, "push")
	s.must(err)
	_, err = client.Enqueue(t.Context(), queue.Job{Tenant: "t", User: "u", Type: "push", Headers: map[string]string{"traceparent": "nonsense"}})
	s.must(err)
	if links := s.ended("process push", 2)[1].Links(); len(links) != 0 {
		t.Errorf("links: %+v", links)
	}
}

type paperError struct{}

func (paperError) Error() string { return "out of paper" }

// Failures and panics are errors of their spans; a pause and a revoked task are none. Each is
// counted, by the type of its error.
func TestOutcomes(t *testing.T) {
	s := open(t, func(_ context.Context, task *asynq.Task) error {
		switch task.Type() {
		case "fails":
			return fmt.Errorf("printing: %w", paperError{})
		case "panics":
			panic("help")
		case "pauses":
			return queue.Pause{Scope: queue.ScopeUser, Until: time.Now().Add(time.Hour), Cause: errors.New("busy")}
		case "revokes":
			return asynq.RevokeTask
		}
		return nil
	})
	want := map[string]string{"fails": "otel.paperError", "panics": "*errors.errorString", "pauses": "", "revokes": "", "works": ""}
	for kind := range want {
		_, err := s.client.Enqueue(t.Context(), queue.Job{Tenant: "t", User: kind, Type: kind})
		s.must(err)
	}
	for _, span := range s.ended("process push", len(want)) {
		kind := value(span, "waterclock.type")
		if got := value(span, "error.type"); got != want[kind] || (span.Status().Code == codes.Error) != (want[kind] != "") {
			t.Errorf("%s: %q, %v", kind, got, span.Status())
		}
	}
	if _, err := s.client.Enqueue(t.Context(), queue.Job{}, queue.Job{}); err == nil {
		t.Error("an invalid job was offered")
	}
	last := s.ended("send push", len(want)+1)[len(want)]
	if last.Status().Code != codes.Error || value(last, "messaging.batch.message_count") != "2" {
		t.Errorf("%v, %v", last.Status(), last.Attributes())
	}
	var all metricdata.ResourceMetrics
	s.must(s.metrics.Collect(t.Context(), &all))
	counted := make(map[string]int64)
	for _, m := range all.ScopeMetrics[0].Metrics {
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				counted[m.Name] += p.Value
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				counted[m.Name] += int64(p.Count)
			}
		}
	}
	if got, want := fmt.Sprint(counted), "map[messaging.client.consumed.messages:5 messaging.client.operation.duration:6 messaging.client.sent.messages:7 messaging.process.duration:5]"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// With nothing configured, what is global serves, and nothing is in the way.
func TestZeroConfig(t *testing.T) {
	telemetry, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	job := telemetry.Inject(t.Context(), queue.Job{Tenant: "t"})
	if job.Headers != nil {
		t.Errorf("headers: %v", job.Headers)
	}
	if err := telemetry.Middleware(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })).ProcessTask(t.Context(), asynq.NewTask("x", nil)); err != nil {
		t.Error(err)
	}
}
