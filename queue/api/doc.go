// Package api serves queues over HTTP: programs in other languages offer jobs, and operators do
// what the command waterclock can do. It is a handler that any service can mount, as `waterclock
// serve` does.
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
// Every request needs the token. Names of tenants, users and jobs are in the query and in bodies,
// where they may contain any characters, and never in the path. Unknown fields and parameters are
// refused. Errors are problems of RFC 9457, with the place, what is wrong and what would be
// right.
//
// openapi.yaml describes all paths and fields; it is also served at /v1/openapi.yaml.
package api
