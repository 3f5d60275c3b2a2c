// Package databases tests package outbox on databases: Postgres, MariaDB and SQLite. The tests start their own servers, on free
// ports, and are skipped where a server is not installed; with WATERCLOCK_REQUIRE_DATABASES they fail instead.
//
// It is a module of its own: the drivers are nobody else's dependencies.
//
//	cd queue/outbox/databases && GOWORK=off go test -count=1 ./...
package databases
