package cgroup_test

import (
	"os"
	"testing"

	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/jailtest"
)

// Rousing moves nothing: the process is in the same groups as before.
func TestRouse(t *testing.T) {
	jailtest.Require(t)
	before, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := cgroup.Rouse(); err != nil {
			t.Fatal(err)
		}
	}
	if after, err := os.ReadFile("/proc/self/cgroup"); err != nil ||
		string(after) != string(before) {
		t.Errorf("%q, %v, before %q", after, err, before)
	}
}
