package main

import (
	"testing"
	"time"
)

func TestBudgets(t *testing.T) {
	for _, tt := range []struct {
		name string
		got  budget
		want budget
	}{
		{"time met", atMost("a", 12*time.Millisecond, 12*time.Millisecond),
			budget{"a", "≤ 12 ms", "12.00 ms", met}},
		{"time missed", atMost("a", 12*time.Millisecond+1, 12*time.Millisecond),
			budget{"a", "≤ 12 ms", "12.00 ms", missed}},
		{"time unknown", atMost("a", 0, time.Second), budget{"a", "≤ 1000 ms", none, unknown}},
		{"ratio met", ratioAtMost("a", sample{8}, sample{10}, 0.8),
			budget{"a", "≤ 0.80 ×", "0.80 ×", met}},
		{"ratio missed", ratioAtMost("a", sample{9}, sample{10}, 0.8),
			budget{"a", "≤ 0.80 ×", "0.90 ×", missed}},
		{"ratio without a peer", ratioAtMost("a", sample{9}, nil, 0.8),
			budget{"a", "≤ 0.80 ×", none, unknown}},
		{"rate met", atLeast("a", 100, 100), budget{"a", "≥ 100", "100", met}},
		{"rate missed", atLeast("a", 99, 100), budget{"a", "≥ 100", "99", missed}},
		{"rate unknown", atLeast("a", 0, 100), budget{"a", "≥ 100", none, unknown}},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, tt.got, tt.want)
		}
	}
}

// A budget whose row does not exist would be "not measured" for ever.
func TestBudgetsHaveTheirRows(t *testing.T) {
	var subjects []*subject
	for _, name := range []string{aloneTrue, prepMany, prepFew, diffMany, diffFew, wallTrue, wallRead, wallSleep} {
		subjects = append(subjects, &subject{name: name, took: sample{time.Millisecond}})
	}
	for _, b := range budgets(subjects, 1) {
		if b.verdict == unknown {
			t.Errorf("%s has no figure", b.what)
		}
	}
}
