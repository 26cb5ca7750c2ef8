// What makes one program of many Go commands, for the bundle without a C
// compiler. A module of its own: the rest of jail needs none of it.
module github.com/jail-sandbox/jail/runners/tools/uroot

go 1.26.9

tool github.com/u-root/gobusybox/src/cmd/makebb

require (
	github.com/dustin/go-humanize v1.0.1 // indirect
	github.com/u-root/gobusybox/src v0.0.0-20250101170133-2e884e4509c7 // indirect
	github.com/u-root/uio v0.0.0-20210528151154-e40b768296a7 // indirect
	golang.org/x/exp v0.0.0-20240222234643-814bf88cf225 // indirect
	golang.org/x/mod v0.42.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/tools v0.52.0 // indirect
	mvdan.cc/sh/v3 v3.7.0 // indirect
)
