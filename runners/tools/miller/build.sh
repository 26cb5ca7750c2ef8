#!/bin/sh
# Builds Miller for WASI, with the Go compiler alone.
#
# usage: build.sh TOOLS UNPACKED BUNDLE_DIR
set -eu
tools=$1 bundle=$3
cd "$2"
patch -s -p1 <"$tools/miller/mlr.patch"
(
	cd pkg/parsing/parser
	awk -f "$tools/miller/tables.awk" actiontable.go gototable.go >tables.go
	rm actiontable.go gototable.go
)
# go.sum of the source says what it is linked with, to the byte.
GOFLAGS= GOOS=wasip1 GOARCH=wasm go build -mod=readonly -trimpath -buildvcs=false -ldflags='-s -w' -o "$bundle/mlr.wasm" ./cmd/mlr
# The licences of all modules that it is linked from.
GOFLAGS= GOOS=wasip1 GOARCH=wasm go list -deps -f '{{with .Module}}{{.Path}} {{.Dir}}{{end}}' ./cmd/mlr |
	LC_ALL=C sort -u | while read -r path from; do
	[ -n "$from" ] || continue
	echo "== $path"
	cat "$from"/LICEN[CS]E*
done >"$bundle/LICENSE.miller"
cp "$(go env GOROOT)/LICENSE" "$bundle/LICENSE.golang"
