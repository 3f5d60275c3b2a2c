// Package otel traces and measures jobs with OpenTelemetry, by its conventions for messaging. It is
// a module of its own, so that only its users depend on OpenTelemetry.
//
//	telemetry, err := otel.New(otel.Config{})
//	…
//	client := telemetry.Client(queueClient, "push")     // a span "send push" for each call
//	_, err = client.Enqueue(ctx, job)
//	…
//	err = worker.Run(ctx, telemetry.Middleware(handler)) // a span "process push" for each attempt
//
// The context of the offer travels in the headers of the job, as traceparent. The span of an
// attempt begins a trace of its own, with a link to the offer: hours may lie between the two.
// Programs in other languages set the header traceparent themselves.
//
// Tenants and users are attributes of spans and not of metrics, since there is no bound of them.
package otel
