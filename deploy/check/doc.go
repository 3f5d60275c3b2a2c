// Package check holds the files that deploy the project against the types and schemas of the
// programs that read them: Kubernetes, Docker Compose, GoReleaser. It is a module of its own, so
// that none of them is a dependency of the project.
package check
