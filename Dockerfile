# syntax=docker/dockerfile:1

# The three commands, static, in an image that has nothing else. The compiler runs on the
# machine that builds and compiles for the one that runs: several platforms need no emulation.
#
#   docker buildx build --platform linux/amd64,linux/arm64 -t waterclock .
#   docker run --rm waterclock waterclock-worker --help

ARG GO_VERSION=1.26
FROM --platform=$BUILDPLATFORM golang:${GO_VERSION} AS build
WORKDIR /src
ENV CGO_ENABLED=0 GOWORK=off
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG TARGETOS TARGETARCH
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    export GOOS=$TARGETOS GOARCH=$TARGETARCH && \
    go build -trimpath -ldflags="-s -w" -o /out/waterclock ./cmd/waterclock && \
    go build -trimpath -ldflags="-s -w" -o /out/waterclock-worker ./cmd/worker && \
    go build -trimpath -ldflags="-s -w" -o /out/waterclock-producer ./cmd/producer

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/ /usr/local/bin/
ENV PATH=/usr/local/bin
USER 65532:65532
CMD ["waterclock", "--help"]
