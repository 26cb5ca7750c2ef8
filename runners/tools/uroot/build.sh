#!/bin/sh
# Builds u-root's commands as one module for WASI, with the Go compiler alone.
#
# usage: build.sh TOOLS WORK BUNDLE_DIR
set -eu
tools=$1 work=$2 bundle=$3
read -r module version _ sum <<-EOT
	$(sed '/^#/d' "$tools/uroot/sources.lock")
EOT

# Go checks a module against its public log of sums; the lock says which it is.
cd "$tools/uroot"
said=$(go mod download -json "$module@$version")
dir=$(echo "$said" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
got=$(echo "$said" | sed -n 's/.*"Sum": "h1:\(.*\)".*/\1/p' | base64 -d | od -An -tx1 | tr -d ' \n')
[ "$got" = "$sum" ] || { echo "$module@$version: not the files that sources.lock pins" >&2; exit 1; }
go build -o "$work/makebb" github.com/u-root/gobusybox/src/cmd/makebb

cp -r "$dir" "$work/u-root"
chmod -R u+w "$work/u-root"
cd "$work/u-root"
# Of a file WASI tells as little as u-root wants to know on Windows.
sed 's/"bill gates"/"user"/' pkg/ls/fileinfo_windows.go >pkg/ls/fileinfo_wasip1.go
sed -i 's|^//go:build |//go:build !wasip1 \&\& |' pkg/ls/fileinfo_unix.go pkg/ls/filestring_unix.go

set --
for c in $(cat "$tools/uroot/commands"); do set -- "$@" "./cmds/core/$c"; done
GOOS=wasip1 GOARCH=wasm GO111MODULE=on GOROOT=$(go env GOROOT) \
	"$work/makebb" -go-extra-args=-trimpath -o "$bundle/u-root.wasm" "$@" >"$work/makebb.log" 2>&1 ||
	{ cat "$work/makebb.log" >&2; exit 1; }

# The licences of all modules that the commands are linked from.
GOOS=wasip1 GOARCH=wasm go list -deps -f '{{with .Module}}{{.Path}} {{.Dir}}{{end}}' "$@" |
	LC_ALL=C sort -u | while read -r path from; do
	[ "$from" != "$PWD" ] || continue
	echo "== $path"
	cat "$from"/LICENSE*
done >"$bundle/LICENSE.others"
cp LICENSE "$bundle/LICENSE.u-root"
cp "$(go env GOROOT)/LICENSE" "$bundle/LICENSE.golang"
