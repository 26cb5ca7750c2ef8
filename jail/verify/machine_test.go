package verify_test

import (
	"testing"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/jailtest"
)

// TestMachine: the mounts of a machine are as planned, proc is narrow, and a mount that the plan
// does not have, or has elsewhere, is found.
func TestMachine(t *testing.T) {
	s := jailtest.New(t)
	for _, target := range []string{"/proc/meminfo", "/proc/stat", "/sys"} {
		if jailtest.ProcFixed(t) && target != "/sys" {
			continue
		}
		s.Plan.Mounts = append(s.Plan.Mounts, jail.Mount{Kind: jail.MountMachine, Target: target})
	}
	j := start(t, s)
	if all := differing(look(t, j)); len(all) > 0 {
		t.Errorf("differs: %q", all)
	}
	last := len(j.Plan.Mounts) - 1
	j.Plan.Mounts = append(j.Plan.Mounts[:last:last], jail.Mount{Kind: jail.MountMachine,
		Target: "/proc/cpuinfo"})
	if all := differing(look(t, j)); len(all) != 2 {
		t.Errorf("a mount too many and one too few: %q", all)
	}
}
