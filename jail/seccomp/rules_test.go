package seccomp

import "testing"

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
