package session_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// A session of which many invocations wait for the capacity of the daemon keeps another session of
// the same user waiting for one of them, and not for all.
func TestSessionsTakeTurns(t *testing.T) {
	h := cmdtest.New(t)
	if err := os.WriteFile(filepath.Join(h.State, "jaild.toml"), fmt.Appendf(nil,
		"[admission]\nruns = 2\nwaiting = 100\nwait = \"1h\"\n[pool]\nsize = 0\n[compile]\n"+
			"times = %d\n", cmdtest.Slower()), 0o600); err != nil {
		t.Fatal(err)
	}
	h.Daemon()
	crowded := h.Session("--policy", profileWith(h, "crowded",
		"[limits]\npids = 200\nmemory = \"1GiB\"\nwall = \"20m\"\n"))
	other := h.Session("--policy", cmdtest.Patient(h))
	running := []*cmdtest.LiveRun{execOf(h, crowded, "c0"), execOf(h, crowded, "c1")}
	waiting := 0
	waits := func(session string, args ...string) *exec.Cmd {
		t.Helper()
		cmd := h.Command(append([]string{"session", "exec", session, "--", h.Probe}, args...)...)
		in, err := cmd.StdinPipe()
		if err = errors.Join(err, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { in.Close() })
		waiting++
		cmdtest.Eventually(t, fmt.Sprintf("%d wait", waiting), func() bool {
			return cmdtest.Metric(h, "jail_admission_waiting") == waiting
		})
		return cmd
	}
	var rest []*exec.Cmd
	for range 6 {
		rest = append(rest, waits(crowded, "lines"))
	}
	last := waits(other, "exit", "3")
	for _, r := range running {
		r.In.Close()
		h.Wants(r.Wait(), 0, "")
	}
	if code := h.ExitCode(last, last.Wait()); code != 3 {
		t.Errorf("the other session's ended with %d", code)
	}
	if n := cmdtest.Metric(h, "jail_admission_waiting"); n < 4 {
		t.Errorf("%d of the crowded session's wait", n)
	}
	h.StopSession(crowded, 0)
	for _, cmd := range rest {
		cmd.Wait()
	}
	h.StopSession(other, 0)
}
