GO   ?= go
LINT ?= github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

.DEFAULT_GOAL := help
.PHONY: help build test race demo bench lint fmt ci clean

### help   show these lines
help:
	@sed -n 's/^### //p' $(MAKEFILE_LIST)

### build  build producer and worker into bin/
build:
	$(GO) build -o bin/ ./cmd/...

### test   run all tests; those on a real Redis need redis-server in PATH
test:
	$(GO) test ./...

### race   run all tests under the race detector, none skipped
race:
	WATERCLOCK_REQUIRE_REDIS=1 $(GO) test -race ./...

### demo   tell the story of three schools, in under a minute
demo:
	$(GO) run ./examples/push-notifications

### bench  measure against asynq and redis_rate; BENCH=--help says how
bench:
	$(GO) run ./bench $(BENCH)

### lint   run golangci-lint (its first build takes minutes)
lint:
	$(GO) run $(LINT) run ./...

### fmt    format all Go code
fmt:
	gofmt -w .

### ci     do what the continuous integration does
ci:
	.ci/run

### clean  remove what build has made
clean:
	rm -rf bin
