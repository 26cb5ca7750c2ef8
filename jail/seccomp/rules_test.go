package seccomp

import (
	"slices"
	"testing"
)

// TestRulesHaveReasons: each rule names calls and says why they are allowed.
func TestRulesHaveReasons(t *testing.T) {
	for name, rules := range groups {
		for _, r := range rules {
			if r.why == "" || len(r.calls) == 0 {
				t.Errorf("group %s: rule %+v lacks a reason or a call", name, r)
			}
		}
	}
}

// A call that counts as a probe is one that no program of the host may make.
func TestProbes(t *testing.T) {
	f := NewFilter(NativeGroups...)
	for _, call := range probed {
		if slices.Contains(slices.Concat(f.Allow, f.ENOSYS, f.ENOTSUP, f.EINVAL), call) {
			t.Errorf("%s is not refused", call)
		}
	}
}
