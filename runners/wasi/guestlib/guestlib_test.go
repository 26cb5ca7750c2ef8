// Package guestlib holds the libraries by which guests fetch; see docs/fetch-abi.md. Those for Go
// and C are tested with the built programs.
package guestlib

import (
	"os/exec"
	"strings"
	"testing"
)

// The library for Python makes urllib and http.client ask the proxy, whichever Python it is.
func TestPython(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no Python here")
	}
	cmd := exec.Command("python3", "-B", "python/test_jail_fetch.py")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.HasSuffix(string(out), "ok\n") {
		t.Errorf("%v\n%s", err, out)
	}
}
