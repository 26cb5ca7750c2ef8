package run_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/runners"
)

var refusedProgram = cmdtest.Build("refused", "./testdata/refused")

// TestRefusedCallsAreSeen: the system calls that a jail was refused are in the result and in the
// log, as the kernel told of them, whatever the inside says.
func TestRefusedCallsAreSeen(t *testing.T) {
	h := cmdtest.New(t)
	h.Bin = filepath.Join(h.Root, "bin")
	if out, err := exec.Command("cp", "-R", cmdtest.Must(cmdtest.Installed())(t),
		h.Bin).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
	init := filepath.Join(h.Bin, "jail-init")
	if err := os.Remove(init); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", cmdtest.Must(refusedProgram())(t),
		init).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
	o := h.Jail("run", "--json", "--id", "refused", "--no-workspace", "--", h.Probe)
	var result struct{ Denied []runners.Denial }
	if err := json.Unmarshal([]byte(o.Out), &result); err != nil {
		t.Fatalf("%v: %+v", err, o)
	}
	want := map[string]int{"mount": 3, "socket(AF_VSOCK)": 1}
	const rule = "filter runtime+wasi"
	if len(result.Denied) != len(want) {
		t.Errorf("denied: %+v", result.Denied)
	}
	for _, d := range result.Denied {
		if d.Layer != "seccomp" || d.Rule != rule || d.Count != want[d.What] {
			t.Errorf("denied: %+v", d)
		}
	}
	for _, r := range cmdtest.DeniedRecords(t, h, "refused") {
		once := want[r.What] == 1 && r.Count == 0
		often := r.Count == want[r.What] && !r.First.IsZero() && !r.Last.Before(r.First)
		if r.Layer != "seccomp" || r.Rule != rule || !once && !often {
			t.Errorf("record: %+v", r)
		}
		delete(want, r.What)
	}
	if len(want) > 0 {
		t.Errorf("not on record: %v", want)
	}
}

var asksProgram = cmdtest.Build("asks", "./testdata/asks")

// TestNativeRefusals: what a program of the host was refused is in the result and in the log, each
// thing with its exact count; a flood is as few entries as a run may have, and no call of it is
// lost (T-409).
func TestNativeRefusals(t *testing.T) {
	h := cmdtest.New(t)
	if out, err := exec.Command("cp", cmdtest.Must(asksProgram())(t),
		filepath.Join(h.Work, "asks")).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
	run := func(id string, args ...string) (denied []runners.Denial, stdout string) {
		o := h.Jail(append([]string{"run", "--json", "--id", id, "--discard", "--profile", "build",
			"--", "./asks"}, args...)...)
		var result struct {
			Denied   []runners.Denial
			Stdout   string
			ExitCode int `json:"exit_code"`
		}
		if err := json.Unmarshal([]byte(o.Out), &result); err != nil || result.ExitCode != 0 {
			t.Fatalf("%v: %+v", err, o)
		}
		return result.Denied, result.Stdout
	}
	sum := func(denied []runners.Denial, what string) (n int) {
		for _, d := range denied {
			if d.Layer != "seccomp" || !strings.HasPrefix(d.Rule, "filter ") || d.Count < 1 {
				t.Errorf("denied: %+v", d)
			}
			if strings.HasPrefix(d.What, what) {
				n += d.Count
			}
		}
		return n
	}
	denied, said := run("few")
	for what, want := range map[string]int{"mount": 3, "socket(AF_VSOCK)": 1,
		"socket(AF_PACKET, SOCK_RAW)": 1, "": 5} {
		if got := sum(denied, what); got != want {
			t.Errorf("%q was refused %d times, %d are told: %+v", what, want, got, denied)
		}
	}
	if !strings.Contains(said, "/etc/shadow: no such file") || !strings.Contains(said,
		"/usr/new: read-only file system") {
		t.Errorf("files: %s", said)
	}
	const flood = 600
	denied, _ = run("many", "flood", strconv.Itoa(flood))
	if got := sum(denied, ""); got != 2*flood || len(denied) > 65 {
		t.Errorf("%d calls as %d things, want %d as 65 at most", got, len(denied), 2*flood)
	}
	for id, want := range map[string]int{"few": 5, "many": 2 * flood} {
		got := 0
		for _, r := range cmdtest.DeniedRecords(t, h, id) {
			got += max(r.Count, 1)
		}
		if got != want {
			t.Errorf("%s: %d calls are on record, want %d", id, got, want)
		}
	}
}
