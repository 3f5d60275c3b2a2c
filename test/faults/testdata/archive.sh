#!/usr/bin/env bash
# Writes older.tar.gz anew: the files of this module, as they are now, that the worker of the faults is made
# of. Needed where the keys in Redis change before there is a release, or when a release is made.
set -euo pipefail
cd "$(dirname "$0")/../../.."
target=$PWD/test/faults/testdata/older.tar.gz
all=$(mktemp -d) some=$(mktemp -d)
trap 'rm -rf "$all" "$some"' EXIT

git archive HEAD | tar x -C "$all"
cd "$all"
mkdir cmd/scribe
for file in worker pulse; do
  sed 's/^package faults$/package main/' "test/faults/${file}_test.go" >"cmd/scribe/$file.go"
done
printf 'package main\n\nimport "os"\n\nfunc main() { os.Exit(work(os.Getenv(workerVariable))) }\n' >cmd/scribe/main.go

files='{{if and .Module .Module.Main}}{{$dir := .Dir}}{{range .GoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{range .EmbedFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{end}}'
GOWORK=off go list -deps -f "$files" ./cmd/scribe | sed "/^\$/d; s#^$all/##" >list
printf '%s\n' go.mod go.sum LICENSE >>list
tar c -T list | tar x -C "$some"
cd "$some"
GOWORK=off go build -o /dev/null ./cmd/scribe
tar c --sort=name --owner=0 --group=0 --mtime=@0 . | gzip -9n >"$target"
