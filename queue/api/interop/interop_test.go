package interop

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/hibiken/asynq"
	"github.com/oapi-codegen/oapi-codegen/v2/pkg/codegen"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/api"
	"github.com/waterclock/waterclock/throttle"
	"github.com/waterclock/waterclock/throttle/limits"
)

const token = "a-token-that-nobody-guesses"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// serve serves the API of a Redis of its own, behind what wrap returns, and runs a worker.
func serve(t *testing.T, wrap func(http.Handler) http.Handler) (url string, started chan queue.Info) {
	rdb := redistest.Start(t).Client(t)
	const file = "limits: {mails: {key: [tenant, user], counts: jobs, missing: refuse, rules: [{window: 2/1h, over: drop}]}}"
	set, err := limits.Parse("limits.yaml", []byte(file), throttle.New(throttle.NewRedisStore(rdb, "{limits}")))
	must(t, err)
	handler, err := api.New(api.Config{Redis: rdb, Token: token, Limits: func() *limits.Set { return set }})
	must(t, err)
	server := httptest.NewServer(wrap(handler))
	t.Cleanup(server.Close)
	started = make(chan queue.Info, 10)
	worker, err := queue.NewWorker(rdb, queue.WorkerConfig{Queues: []string{"push"}, Lease: time.Second})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- worker.Run(ctx, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			info, _ := queue.FromContext(ctx)
			started <- info
			return nil
		}))
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return server.URL, started
}

// The client in this package is the one that the description gives.
func TestTheClientIsUpToDate(t *testing.T) {
	spec, err := openapi3.NewLoader().LoadFromData(api.OpenAPI())
	must(t, err)
	code, err := codegen.Generate(spec, codegen.Configuration{
		PackageName: "interop", Generate: codegen.GenerateOptions{Models: true, Client: true},
		OutputOptions: codegen.OutputOptions{IncludeOperationIDs: []string{"offerJobs", "getJob", "explain"}},
	})
	must(t, err)
	is, err := os.ReadFile("client.gen.go")
	must(t, err)
	if _, body, found := strings.Cut(code, "package interop"); !found || !strings.Contains(string(is), body) {
		t.Error("client.gen.go is old: run go generate")
	}
}

// A generated client offers a job, it starts, and the client is told what it asks.
func TestGeneratedClient(t *testing.T) {
	url, started := serve(t, func(h http.Handler) http.Handler { return h })
	client, err := NewClientWithResponses(url, WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+token)
		return nil
	}))
	must(t, err)
	offer := func(job Job, more ...Job) *OfferJobsResponse {
		t.Helper()
		var body Offer
		must(t, body.FromJob(job))
		if len(more) > 0 {
			must(t, body.FromJobs(append(Jobs{job}, more...)))
		}
		got, err := client.OfferJobsWithResponse(t.Context(), "push", body)
		must(t, err)
		return got
	}
	id, later, payload := "order-17", time.Now().Add(time.Hour), any(map[string]string{"title": "Hello"})
	got := offer(Job{Id: &id, Tenant: "school-7", User: "teacher-42", Type: "push", Payload: &payload})
	if got.JSON200 == nil || len(got.JSON200.Receipts) != 1 || got.JSON200.Receipts[0].Status != "accepted" {
		t.Fatalf("%s", got.Body)
	}
	if info := <-started; info.ID != id || info.Tenant != "school-7" {
		t.Errorf("%+v", info)
	}
	got = offer(Job{Tenant: "t", User: "u", Type: "push"}, Job{Id: &id, Tenant: "t", User: "u", Type: "push", NotBefore: &later})
	if got.JSON200 == nil || len(got.JSON200.Receipts) != 2 || got.JSON200.Receipts[1].Status != "duplicate" {
		t.Fatalf("%s", got.Body)
	}
	job, err := client.GetJobWithResponse(t.Context(), "push", &GetJobParams{Id: id})
	must(t, err)
	why, err := client.ExplainWithResponse(t.Context(), "push", &ExplainParams{Tenant: "school-7"})
	must(t, err)
	if job.JSON200 == nil || job.JSON200.State != "started" || why.JSON200 == nil || why.JSON200.Waiting != 0 {
		t.Errorf("%s\n%s", job.Body, why.Body)
	}
	got = offer(Job{Tenant: "t", User: "u"})
	if p := got.ApplicationproblemJSONDefault; p == nil || p.Status != 400 || p.Errors == nil || *(*p.Errors)[0].Pointer != "/type" {
		t.Errorf("%s", got.Body)
	}
}
