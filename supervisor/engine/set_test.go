package engine

import (
	"errors"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/prewarm"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// TestSlots: one policy too many takes the slot of another, but none that an invocation is about to
// use.
func TestSlots(t *testing.T) {
	s := NewSet("s", 0, 1, prewarm.Options{}, nil)
	held := map[string]*slot{}
	for _, policy := range []string{"a", "b", "c", "d"} {
		sl, err := s.slot(policy)
		if err != nil {
			t.Fatal(err)
		}
		held[policy] = sl
	}
	_, err := s.slot("e")
	if e, ok := errors.AsType[*problem.Error](err); !ok || e.Code != problem.Busy {
		t.Fatalf("a policy more than there are slots: %v", err)
	}
	s.taken(held["b"])
	if _, err := s.slot("e"); err != nil {
		t.Fatal(err)
	}
	for policy, sl := range held {
		if kept := s.slots[policy] == sl; kept != (policy != "b") {
			t.Errorf("slot %s kept: %t", policy, kept)
		}
	}
}
