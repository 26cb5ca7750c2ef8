package session_test

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// jumpClock sets the machine's clock, and lets the test's cleanup set it right again.
func jumpClock(t *testing.T, by time.Duration) {
	t.Helper()
	// With a reading of the clock that nobody sets.
	begun := time.Now()
	set := func(to time.Time) {
		tv := syscall.NsecToTimeval(to.UnixNano())
		if err := syscall.Settimeofday(&tv); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { set(begun.Add(time.Since(begun))) })
	set(begun.Add(by))
}

// T-417: the clock jumps by a day, and back by a day, while jails live. A run ends at its limit,
// neither before nor after; one that has time goes on, and so does a session that may stand idle
// for an hour; the log, in which time goes back, verifies.
func TestClockJumps(t *testing.T) {
	if os.Getenv("JAIL_VM_TREE") == "" {
		t.Skip("sets the clock of this machine: runs in machines that were made for it (make vm-test)")
	}
	const day = 24 * time.Hour
	for name, by := range map[string]time.Duration{"forward": day, "back": -day} {
		t.Run(name, func(t *testing.T) {
			h := cmdtest.New(t)
			d := h.Daemon()
			h.Wants(h.Jail("session", "start", "--id", "idle", "--profile", "default"), 0, "")
			patient := h.Live("patient", "--policy", cmdtest.Patient(h))
			limited := make(chan message.Result, 1)
			const wall = 5 * time.Second
			begun := time.Now()
			go func() {
				limited <- h.Result("--id", "limited", "--limit", "wall=5s", "--", h.Probe,
					"sleep", "1h")
			}()
			cmdtest.Eventually(t, "the run has begun", func() bool {
				return len(h.Records("limited", "run.started")) > 0
			})
			jumpClock(t, by)
			res := <-limited
			took := time.Since(begun)
			if res.ExitCode != 124 || res.Limit == nil || res.Limit.Name != "wall" {
				t.Errorf("%+v", res)
			}
			if took < wall || took > wall+cmdtest.Bound {
				t.Errorf("a limit of %v ended the run after %v", wall, took)
			}
			if ms := res.Usage.WallMS; ms < wall.Milliseconds() || ms > took.Milliseconds() {
				t.Errorf("the run says that it took %d ms, the client waited %v", ms, took)
			}
			patient.Says("again")
			patient.In.Close()
			h.Wants(patient.Wait(), 0, "")
			h.Wants(h.Jail("session", "exec", "idle", "--", h.Probe, "sleep", "1ms"), 0, "")
			h.Wants(h.Jail("session", "stop", "idle"), 0, "")
			h.Wants(h.Jail("audit", "verify"), 0, "")
			for _, id := range h.Kept() {
				h.Discard(id)
			}
			d.Stop()
			h.WantNothingLeft()
		})
	}
}
