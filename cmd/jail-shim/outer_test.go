package main

import (
	"runtime/debug"
	"testing"

	"github.com/jail-sandbox/jail/jail/control"
)

// TestServeStreams: a shim that carries streams collects garbage, although jaild starts it with
// GOGC=off.
func TestServeStreams(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	toProxy, proxy, err := control.Pair("proxy")
	if err != nil {
		t.Fatal(err)
	}
	defer toProxy.Close()
	inside, err := serveStreams(proxy)
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	if percent := debug.SetGCPercent(-1); percent <= 0 {
		t.Errorf("garbage collection is at %d", percent)
	}
}
