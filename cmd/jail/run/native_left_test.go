package run_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// At the limit of wall time a program of the host gets SIGTERM, with all that it has started, and
// may end by itself within the grace. Whatever it makes of that, the limit has ended the run.
func TestNativeGrace(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	id := h.Session("--discard", "--profile", "build")
	const forever = "; echo ready; while :; do sleep 1; done"
	for name, c := range map[string]struct{ script, out, signal string }{
		"exits": {`trap 'echo bye; exit 5' TERM` + forever, "bye\n", ""},
		// The first process ends before its child.
		"a child": {`(trap 'echo from child; exit' TERM` + forever + `) & wait`, "from child\n",
			"SIGTERM"},
		"dies":     {`echo ready; exec sleep 1000`, "", "SIGTERM"},
		"does not": {`trap '' TERM` + forever, "", "SIGKILL"},
	} {
		of := []string{"run", "--discard", "--profile", "build"}
		if name == "a child" {
			of = []string{"session", "exec", id}
		}
		var r message.Result
		// On a busy machine the limit may come before the program is ready for it.
		for wall := 3; wall < 60 && !strings.HasPrefix(string(r.Stdout), "ready\n"); wall *= 2 {
			r = h.ObjectOf(append(of[:len(of):len(of)], "--json", "--limit", fmt.Sprintf("wall=%ds", wall),
				"--", "sh", "-c", c.script)...)
		}
		signal := ""
		if r.Signal != nil {
			signal = *r.Signal
		}
		if r.ExitCode != 124 || r.Limit == nil || r.Limit.Name != "wall" ||
			string(r.Stdout) != "ready\n"+c.out || signal != c.signal || r.LeftProcesses != 0 {
			t.Errorf("%s: exit code %d, signal %q, limit %+v, %q", name, r.ExitCode, signal,
				r.Limit, r.Stdout)
		}
	}
	h.StopSession(id, 0)
}

// The processes that a program leaves behind are killed, and the result and the record of its end
// say how many there were. Those that had ended before are none of them.
func TestNativeLeftProcesses(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	for script, want := range map[string]int64{
		"exit 3": 0,
		"sleep 1000 & setsid sleep 1000 & (sleep 1000 & exit); exit 3":       3,
		"trap '' TERM; (trap '' TERM INT; while :; do :; done) & exit 3":     1,
		"sh -c 'kill -9 $$'; true & wait; sh -c 'sleep 1000 & exit'; exit 3": 1,
	} {
		r := h.ObjectOf("run", "--discard", "--profile", "build", "--json", "--", "sh", "-c",
			script)
		if r.ExitCode != 3 || r.LeftProcesses != want || r.Limit != nil {
			t.Errorf("%q: exit code %d, %d left, limit %+v; want %d", script, r.ExitCode,
				r.LeftProcesses, r.Limit, want)
		}
		o := h.Jail("audit", "query", "--run", r.ID, "--json")
		if got := strings.Contains(o.Out, `"left_processes":`); got != (want > 0) {
			t.Errorf("%q: the record has it: %v\n%s", script, got, o.Out)
		}
	}
}
