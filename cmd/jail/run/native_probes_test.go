package run_test

import (
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// A refused call that programs try and do without is in the result and in the record, and standard
// error says nothing of it but with --verbose, in one line. Any other refused call has its line.
func TestNativeProbes(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	const probes = `import ctypes, os
libc = ctypes.CDLL(None)
for n in range(3): libc.mlockall(1)
try: os.sched_setaffinity(0, {0})
except PermissionError: pass
`
	id := h.Session("--discard", "--profile", "build")
	const line = "jail: denied: calls that programs try and do without: " +
		"mlockall (3), sched_setaffinity (1)\n"
	for _, c := range []struct {
		flags       []string
		more, lines string
	}{
		{nil, "", ""},
		{[]string{"--verbose"}, "", line},
		{nil, "libc.unshare(0x10000000)", "jail: denied: unshare(CLONE_NEWUSER) ("},
	} {
		for _, of := range [][]string{{"run", "--discard", "--profile", "build"},
			{"session", "exec", id}} {
			o := h.Jail(append(append(of, c.flags...), "--", "python3", "-c", probes+c.more)...)
			if o.Code != 0 || !strings.HasPrefix(o.Err, c.lines) ||
				strings.Count(o.Err, "\n") != min(len(c.lines), 1) {
				t.Errorf("%s %q, %q: %+v", of[0], c.flags, c.more, o)
			}
		}
	}
	r := h.ObjectOf("session", "exec", id, "--json", "--", "python3", "-c", probes)
	for _, d := range r.Denied {
		if !d.Probe || d.What != "mlockall" && d.What != "sched_setaffinity" {
			t.Errorf("%+v", d)
		}
	}
	o := h.Jail("audit", "query", "--run", r.ID, "--type", "denied", "--json")
	if len(r.Denied) != 2 || !strings.Contains(o.Out, `"what":"mlockall"`) ||
		!strings.Contains(o.Out, `"what":"sched_setaffinity"`) {
		t.Errorf("the record: %+v\n%+v", r.Denied, o)
	}
	h.StopSession(id, 0)
}
