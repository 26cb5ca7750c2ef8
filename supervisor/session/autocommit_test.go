package session

import (
	"testing"

	"github.com/jail-sandbox/jail/supervisor/run"
)

// TestLastSettles: what an invocation left to the last one that writes is committed also when that
// one ends without its own commit.
func TestLastSettles(t *testing.T) {
	v := &settler{}
	first, second, third := &run.Run{}, &run.Run{}, &run.Run{}
	calls := 0
	f := func() { calls++ }
	for _, r := range []*run.Run{first, second, third} {
		v.begin(r)
	}
	v.settle(first, f)
	v.leave(first, f)
	v.leave(second, f)
	if calls != 0 {
		t.Fatal("committed while one writes")
	}
	v.leave(third, f)
	if calls != 1 {
		t.Errorf("committed %d times after the last", calls)
	}
	// The control: who left nothing to others is not committed by its failure.
	v.begin(first)
	v.leave(first, f)
	// And one that settled has nothing left.
	v.begin(second)
	v.settle(second, f)
	v.leave(second, f)
	if calls != 2 {
		t.Errorf("committed %d times at the end", calls)
	}
}
