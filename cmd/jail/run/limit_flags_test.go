package run_test

import (
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// TestLimitFlags: a --limit that asks for more than the policy grants is told to change nothing,
// wherever the run is; one that lowers is not, and neither is what jail itself bounds.
func TestLimitFlags(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	const idle = "changes nothing: the policy grants "
	for flag, want := range map[string]string{"wall=20m": "--limit wall=20m " + idle + "30s,",
		"fetch.requests=5": "--limit fetch.requests=5 " + idle + "0,",
		"wall=29s":         "", "wall=30s": "", "memory=64MiB": ""} {
		r := h.Result("--limit", flag, "--no-workspace", "--", h.Probe, "exit", "0")
		if got := strings.Join(r.Warnings, "\n"); r.Error != nil || want == "" && got != "" ||
			!strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q; %+v", flag, got, want, r.Error)
		}
	}
	o := h.Jail("run", "--limit", "wall=20m", "--no-workspace", "--", h.Probe, "exit", "0")
	h.Wants(o, 0, "")
	if want := "jail: warning: --limit wall=20m " + idle; !strings.Contains(o.Err, want) {
		t.Errorf("%q, want %q", o.Err, want)
	}
	if r := h.ObjectOf("wait", "--json",
		cmdtest.Detached(h, "--no-workspace", "--", h.Probe, "exit", "0")); len(r.Warnings) > 0 {
		t.Errorf("detached: %q", r.Warnings)
	}
	h.Wants(h.Jail("session", "start", "--id", "s", "--no-workspace", "--profile", "default"), 0,
		"")
	if r := h.ObjectOf("session", "exec", "s", "--json", "--limit", "wall=20m", "--", h.Probe,
		"exit", "0"); len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], idle) {
		t.Errorf("session: %q", r.Warnings)
	}
	h.Wants(h.Jail("session", "stop", "s"), 0, "")
}
