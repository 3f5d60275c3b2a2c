GO        ?= go
LINT      ?= github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
VULN      ?= golang.org/x/vuln/cmd/govulncheck@v1.9.0
IMAGE     ?= waterclock
PLATFORMS ?= linux/amd64,linux/arm64
MODULES   := $(shell .ci/modules)
SEED      ?= 1
ROUNDS    ?= 10

.DEFAULT_GOAL := help
.PHONY: help build test short race exhaustive faults model demo up bench lint vuln tidy fmt manifests deploy image ci clean

### help          show these lines
help:
	@sed -n 's/^### //p' $(MAKEFILE_LIST)

### build         build waterclock, worker and producer into bin/
build:
	CGO_ENABLED=0 $(GO) build -o bin/ ./cmd/...

### test          run the tests, a sample of the exhaustive ones; those on a real Redis need redis-server in PATH
test:
	$(GO) test ./...

### short         the quick tests
short:
	$(GO) test -short ./...

### race          run the tests under the race detector, none skipped for want of a Redis
race:
	WATERCLOCK_REQUIRE_REDIS=1 $(GO) test -race -timeout 30m ./...

### exhaustive    every case of every test; SEED=1
exhaustive:
	WATERCLOCK_REQUIRE_REDIS=1 WATERCLOCK_EXHAUSTIVE=1 WATERCLOCK_SEED=$(SEED) $(GO) test -p 1 -timeout 2h ./...
	cd queue/outbox/databases && GOWORK=off WATERCLOCK_REQUIRE_REDIS=1 WATERCLOCK_EXHAUSTIVE=1 $(GO) test -count=1 -timeout 1h ./...

### faults        every fault, several times, under an hour; SEED=1 ROUNDS=10
faults:
	WATERCLOCK_REQUIRE_REDIS=1 WATERCLOCK_EXHAUSTIVE=1 WATERCLOCK_SEED=$(SEED) WATERCLOCK_FAULT_ROUNDS=$(ROUNDS) \
		$(GO) test -run 'TestFaults$$' -v -timeout 2h ./test/faults

### model         a million random operations on the whole queue, over an hour; SEED=1 OPERATIONS=1000000
model: OPERATIONS ?= 1000000
model:
	WATERCLOCK_MODEL_SEED=$(SEED) WATERCLOCK_MODEL_OPERATIONS=$(OPERATIONS) \
		$(GO) test -run 'TestModel$$' -v -timeout 4h ./queue/internal/runner

### demo          tell the story of three schools, in under a minute
demo:
	$(GO) run ./examples/push-notifications

### up            worker, dashboard, Valkey, Prometheus and Grafana on this machine
up:
	docker compose -f deploy/compose.yaml up --build

### bench         measure against asynq and redis_rate; BENCH=--help says how
bench:
	$(GO) run ./bench $(BENCH)

### lint          run golangci-lint (its first build takes minutes)
lint:
	$(GO) run $(LINT) run ./...

### vuln          look for known vulnerabilities that are reached, in every module
vuln:
	for module in $(MODULES); do (cd $$module && GOWORK=off $(GO) run $(VULN) ./...) || exit 1; done

### tidy          tidy every module
tidy:
	for module in $(MODULES); do (cd $$module && GOWORK=off $(GO) mod tidy) || exit 1; done

### fmt           format all Go code
fmt:
	gofmt -w .

### manifests     make deploy/kubernetes from the Helm chart, after it, the alarms or the policies have changed
manifests:
	cd deploy/check && GOWORK=off $(GO) generate ./...

### deploy        check the files of deploy/, of releases, and the workflows
deploy:
	cd deploy/check && GOWORK=off $(GO) test -count=1 ./...
	$(GO) run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

### image         build the image for several platforms, without emulation
image:
	docker buildx build --platform $(PLATFORMS) -t $(IMAGE) .

### ci            do what the continuous integration does
ci:
	.ci/run

### clean         remove what build has made
clean:
	rm -rf bin dist
