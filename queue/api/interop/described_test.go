package interop

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/waterclock/waterclock/queue/api"
)

// described holds requests and answers against the description: what that allows is answered,
// what it forbids is refused, and both look as it says.
func described(t *testing.T, h http.Handler) http.Handler {
	spec, err := openapi3.NewLoader().LoadFromData(api.OpenAPI())
	must(t, err)
	must(t, spec.Validate(t.Context()))
	router, err := gorillamux.NewRouter(spec)
	must(t, err)
	text := func(body io.Reader, _ http.Header, _ *openapi3.SchemaRef, _ openapi3filter.EncodingFn) (any, error) {
		data, err := io.ReadAll(body)
		return string(data), err
	}
	openapi3filter.RegisterBodyDecoder("application/yaml", text)
	openapi3filter.RegisterBodyDecoder("application/x-ndjson", text)
	options := &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		route, values, err := router.FindRoute(r)
		if err != nil {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
			return
		}
		in := &openapi3filter.RequestValidationInput{Request: r, PathParams: values, Route: route, Options: options}
		forbidden := openapi3filter.ValidateRequest(r.Context(), in)
		recorded := httptest.NewRecorder()
		h.ServeHTTP(recorded, r)
		if refused := recorded.Code >= 400; (forbidden != nil) != refused {
			t.Errorf("%s %s: the description says %v, the handler %d %s", r.Method, r.URL, forbidden, recorded.Code, recorded.Body)
		}
		out := &openapi3filter.ResponseValidationInput{
			RequestValidationInput: in, Status: recorded.Code, Header: recorded.Header(), Options: options,
			Body: io.NopCloser(bytes.NewReader(recorded.Body.Bytes())),
		}
		if err := openapi3filter.ValidateResponse(r.Context(), out); err != nil {
			t.Errorf("%s %s: %v\n%s", r.Method, r.URL, err, recorded.Body)
		}
		w.WriteHeader(recorded.Code)
	})
}

// Every operation takes and answers what the description says, refusals included.
func TestAnswersAreAsDescribed(t *testing.T) {
	url, started := serve(t, func(h http.Handler) http.Handler { return described(t, h) })
	const q, limits = "/v1/queues/push", `default: x\npolicies: {x: {user: {rules: [{window: 1/1h}]}}}`
	for _, request := range [][3]string{
		{"GET", "/v1/openapi.yaml"}, {"GET", "/v1/queues"}, {"GET", q}, {"GET", q + "/policies"},
		{"PUT", q + "/policies", `{"source":"` + limits + `","version":0,"author":"a","reason":"b"}`},
		{"POST", q + "/policies/check", `{"source":"` + limits + `"}`}, {"POST", q + "/policies/diff", `{"source":"` + limits + `"}`},
		{"GET", q + "/policies"}, {"GET", q + "/policies/history?n=5"},
		{"POST", q + "/jobs", `{"tenant":"t","user":"u","type":"push","id":"a","payload":[1,null],"priority":"low","timeout":"3s","max_retry":0,"cost":1,"collapse_key":"k"}`},
		{"POST", q + "/jobs", `[{"tenant":"t","user":"u","type":"push","id":"b","not_before":"2026-01-01T00:00:00Z","deadline":"2100-01-01T00:00:00Z","finish_by":"2100-01-01T00:00:00Z"}]`},
		{"POST", q + "/jobs", `{"tenant":"t","user":"u","type":"push","id":"c"}`}, {"POST", q + "/jobs", `{"tenant":"t","user":"u","type":"push","costs":1}`},
		{"POST", q + "/jobs", `{"tenant":"t","user":"u","type":"push","id":"d","keys":{"domain":"gmail.com"},"costs":{"tokens":0}}`},
		{"POST", q + "/jobs", `{"tenant":"t","user":"u","type":"push","keys":{"domain":""}}`}, {"POST", q + "/jobs", `{"tenant":"t","user":"u","type":"push","costs":{"tokens":-1}}`},
		{"POST", q + "/jobs", `[{"tenant":"t","user":"u"}]`}, {"POST", q + "/jobs", `{"tenant":"","user":"u","type":"push"}`},
		{"POST", "/v1/decide", `{"tenant":"t","user":"u"}`}, {"POST", "/v1/decide", `[{"tenant":"t","user":"u","mode":"reserve"},{"tenant":"t","user":"u","keys":{"a":"b"},"costs":{"c":1},"cost":1,"type":"x"}]`},
		{"POST", "/v1/decide", `{"tenant":"t","user":"u","mode":"later"}`}, {"POST", "/v1/decide", `[]`}, {"POST", "/v1/decide", `{"tenent":"t"}`},
		{"POST", "/v1/limits/mails/acquire", `{"tenant":"t","user":"w","within_ms":1}`}, {"POST", "/v1/limits/mails/acquire", `{"tenant":"t","user":"w","within_ms":15001}`},
		{"POST", "/v1/limits/mail/acquire", `{"keys":{"a":1}}`}, {"POST", "/v1/limits/mails/acquire", `{"tenant":"t","user":"w","keys":{"a":"b"},"costs":{"c":1},"cost":1,"type":"x"}`},
		{"GET", q + "/job?id=c"}, {"GET", q + "/why?tenant=t&user=u"}, {"GET", q + "/why"}, {"GET", q + "/health"}, {"GET", q + "/doctor"},
		{"GET", q + "/tenants?n=3&from=0"}, {"GET", q + "/tenants?n=0"}, {"GET", q + "/users?tenant=t"}, {"GET", q + "/users"}, {"GET", q + "/lane?tenant=t&user=u"},
		{"GET", q + "/running"}, {"GET", q + "/later"}, {"GET", q + "/retrying"}, {"GET", q + "/failures"}, {"GET", q + "/drops?reason=full"}, {"GET", q + "/drops?reason=fulll"}, {"POST", q + "/jobs", `{"tenant":"t","user":"u","type":"push","priority":"urgent"}`}, {"GET", q + "/dead?tenant=t"}, {"GET", q + "/workers"},
		{"POST", q + "/pause", `{"tenant":"t","for":"10m"}`}, {"GET", q + "/pauses"}, {"POST", q + "/pause", `{"for":7}`}, {"POST", q + "/resume", `{"tenant":"t"}`},
		{"PUT", q + "/overrides?limit=user&key=t&key=u", `{"rules":["leak 5/s","window 9/1m over=drop"],"concurrency":"25%","capacity":9,"for":"2h","author":"a","reason":"b"}`},
		{"GET", q + "/overrides"}, {"PUT", q + "/overrides", `{"rules":["leak 5/s"],"for":"2h"}`}, {"PUT", q + "/overrides?limit=tenant&key=t", `{"rules":"leak 5/s","for":"2h"}`},
		{"DELETE", q + "/overrides?limit=user&key=t&key=u&author=a&reason=b"}, {"DELETE", q + "/overrides"},
		{"POST", q + "/cancel", `{"ids":["c","nobody"]}`}, {"POST", q + "/purge", `{"tenant":"t"}`}, {"POST", q + "/purge", `{}`},
		{"POST", q + "/revive", `{"entries":["1-1"]}`}, {"POST", q + "/delete", `{"entries":["1-1"]}`},
		{"POST", q + "/plan", `{"source":"` + limits + `","against":"` + limits + `","offers":[{"at":1,"tenant":"t","user":"u"}],"takes":"1s","places":3,"at":"at"}`},
	} {
		r, err := http.NewRequestWithContext(t.Context(), request[0], url+request[1], strings.NewReader(request[2]))
		must(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		if request[2] != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		reply, err := http.DefaultClient.Do(r)
		must(t, err)
		must(t, reply.Body.Close())
	}
	<-started
}
