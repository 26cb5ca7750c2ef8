#!/bin/sh
# Builds gojq for WASI, with the Go compiler alone.
#
# usage: build.sh TOOLS BUNDLE_DIR
set -eu
tools=$1 bundle=$2
cd "$tools/gojq"
GOFLAGS= GOOS=wasip1 GOARCH=wasm go build -mod=readonly -trimpath -buildvcs=false -ldflags='-s -w' -o "$bundle/gojq.wasm" github.com/itchyny/gojq/cmd/gojq
# The licences of all modules that it is linked from.
GOFLAGS= GOOS=wasip1 GOARCH=wasm go list -deps -f '{{with .Module}}{{.Path}} {{.Dir}}{{end}}' github.com/itchyny/gojq/cmd/gojq |
	LC_ALL=C sort -u | while read -r path from; do
	[ -n "$from" ] || continue
	echo "== $path"
	cat "$from"/LICEN[CS]E*
done >"$bundle/LICENSE.gojq"
cp "$(go env GOROOT)/LICENSE" "$bundle/LICENSE.golang"
