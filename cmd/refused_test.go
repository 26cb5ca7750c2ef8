package cmd_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/runners"
)

var refusedProgram = build("refused", "./testdata/refused")

// TestRefusedCallsAreSeen: the system calls that a jail was refused are in the result and in the log, as the kernel told of them, whatever the
// inside says.
func TestRefusedCallsAreSeen(t *testing.T) {
	h := newHost(t)
	h.bin = filepath.Join(h.root, "bin")
	if out, err := exec.Command("cp", "-R", must(installed())(t), h.bin).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
	init := filepath.Join(h.bin, "jail-init")
	if err := os.Remove(init); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", must(refusedProgram())(t), init).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
	o := h.jail("run", "--json", "--id", "refused", "--no-workspace", "--", h.probe)
	var result struct{ Denied []runners.Denial }
	if err := json.Unmarshal([]byte(o.out), &result); err != nil {
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
	lines := h.jail("audit", "show", "--run", "refused", "--type", "denied", "--json")
	seen := 0
	for dec := json.NewDecoder(strings.NewReader(lines.out)); ; seen++ {
		var r struct {
			Layer, What, Rule string
			Count             int
			First, Last       time.Time
		}
		if dec.Decode(&r) != nil {
			break
		}
		once := want[r.What] == 1 && r.Count == 0
		often := r.Count == want[r.What] && !r.First.IsZero() && !r.Last.Before(r.First)
		if r.Layer != "seccomp" || r.Rule != rule || !once && !often {
			t.Errorf("record: %+v", r)
		}
	}
	if seen != len(want) {
		t.Errorf("%d records: %s", seen, lines.out)
	}
}
