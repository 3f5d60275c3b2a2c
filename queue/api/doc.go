// Package api serves a queue over HTTP: a door for programs in other languages, and for
// operators everything that the command waterclock can do. It is a handler that any service can
// mount; `waterclock serve` does.
//
//	handler, err := api.New(api.Config{Redis: rdb, Token: os.Getenv("WATERCLOCK_TOKEN")})
//	…
//	http.Handle("/v1/", handler)
//
// A job is offered with the fields of a line of producer, and the answer says what becomes of it:
//
//	curl -H "Authorization: Bearer $WATERCLOCK_TOKEN" -H 'Content-Type: application/json' \
//	  -d '{"id":"order-17","tenant":"school-7","user":"teacher-42","type":"push"}' \
//	  http://127.0.0.1:9091/v1/queues/push/jobs
//
//	{"receipts":[{"id":"order-17","status":"accepted","place":1,"start":"2026-11-22T08:00:01.5Z"}]}
//
// Every request needs the token. Names of tenants, users and jobs stand in the query and in
// bodies, where they may hold anything, and never in the path. What nobody reads is refused:
// an unknown field, an unknown parameter. Errors are problems as RFC 9457 has them, with the
// place, what is wrong and what would be right.
//
// openapi.yaml describes all of it; it is served, too, at /v1/openapi.yaml.
package api
