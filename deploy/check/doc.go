// Package check holds the files that deploy the project against the types and schemas of the
// programs that read them: Kubernetes, Helm, the Prometheus operator, Docker Compose, GoReleaser. It is a module of its
// own, so that none of them is a dependency of the project.
//
// Manifests that are made from the Helm chart are written by go generate (package chart). Package reach says which pods
// network policies let talk to each other.
package check

//go:generate go run ./generate
