// Package interop talks to the HTTP API as strangers do: with a client that oapi-codegen has
// made of openapi.yaml, and through kin-openapi, which holds every request and answer against
// that description.
//
// It is a module of its own: its dependencies are nobody else's. After a change of openapi.yaml:
//
//	cd queue/api/interop && GOWORK=off go generate && GOWORK=off go test ./...
package interop

//go:generate go tool oapi-codegen -config generate.yaml ../openapi.yaml
