package agent_test

import (
	"testing"
	"time"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// TestPrewarmed: agents of one kind get jails that were made ahead, each with the database of its own
// agent.
func TestPrewarmed(t *testing.T) {
	h := cmdtest.NewPolicyHost(t, map[string]string{"agent": profile})
	h.Close()
	h.Warm = 2
	h.Open()
	dirs := []string{state(t, h, root), state(t, h, root)}
	var took []time.Duration
	for n := range 6 {
		dir := dirs[n%2]
		begun := time.Now()
		r, ready := wake(t, h, root, request(t, root, dir))
		took = append(took, time.Since(begun))
		seq := ready.Committed + 1
		if want := uint64(n/2 + 1); seq != want {
			t.Errorf("wake %d: the next event is %d, want %d", n, seq, want)
		}
		if _, failed := r.event(seq, sql("exec", "CREATE TABLE IF NOT EXISTS t (a)"),
			sql("run", "INSERT INTO t VALUES (?)", n)); failed != nil {
			t.Fatalf("%+v", failed)
		}
		res := r.sleep()
		if res.ExitCode != 0 || res.Error != nil || len(res.Denied) > 0 {
			t.Errorf("%+v\n%s", res, r.output())
		}
		want := cmdtest.StartWarm
		if n == 0 {
			want = cmdtest.StartCold
		}
		if start := h.StartOf(res.ID); start != want {
			t.Errorf("wake %d began %q, want %q", n, start, want)
		}
		cmdtest.Eventually(t, "a jail waits", func() bool { return h.Waits() != "0" })
	}
	t.Logf("until ready: %v", took)
}
