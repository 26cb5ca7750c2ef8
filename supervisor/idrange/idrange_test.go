package idrange

import (
	"testing"

	"github.com/jail-sandbox/jail/jail"
)

func TestRangesAreHeldOnce(t *testing.T) {
	seen := map[uint32]bool{}
	for range 50 {
		r, err := Take()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Release()
		if seen[r.Base] {
			t.Fatalf("range %#x was given twice", r.Base)
		}
		seen[r.Base] = true
		if r.Base < jail.FirstBase || r.Base >= jail.FirstBase+jail.Bases*jail.BaseSize ||
			r.Base%jail.BaseSize != 0 {
			t.Errorf("range %#x is not one that jails use", r.Base)
		}
	}
}

func TestAReleasedRangeCanBeTaken(t *testing.T) {
	r, err := Take()
	if err != nil {
		t.Fatal(err)
	}
	base := r.Base
	r.Release()
	again, err := take(int(base-jail.FirstBase) / jail.BaseSize)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Release()
	if again.Base != base {
		t.Errorf("got %#x, want the released %#x", again.Base, base)
	}
}
