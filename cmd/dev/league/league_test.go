//go:build league

// Package league lets the same attacks meet jail and the sandboxes that people compare it with,
// each at its usual hardened settings, and writes down who stopped what. `make league` runs it: it
// needs root, programs that no other test needs, and some minutes.
//
// Each sandbox stands in a throwaway of its own: namespaces of mounts, network, IPC and names, and
// of processes where the sandbox can bear it. An attack that succeeds harms that and nothing else.
package league

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/jail/jailtest"
)

var (
	update = flag.Bool("update", false, "write docs/league.md")
	runsc  = flag.String("runsc", "", "path of runsc; without it gVisor has no column")
	inside = flag.String("inside", "",
		"used by the test itself: the sandbox whose throwaway this process is in")
	shared = flag.String("shared", "",
		"used by the test itself: a directory for what is handed over")
)

// hangBound is after what time a sandbox is taken for one that hangs.
const hangBound = "300"

func TestMain(m *testing.M) { os.Exit(jailtest.Main(m)) }

// An answer is how one attack went in one sandbox.
type answer struct {
	Stopped bool
	Text    string
}

// What a throwaway reports.
type outcome struct {
	Version string
	// As it was run, shortened.
	Command string
	Notes   []string
	Answers map[string]answer
	Startup float64 // median, in milliseconds
	// why this sandbox did not run at all
	Refused string
}

// TestLeague makes the table. It fails if an attack does not work without any sandbox, since then
// the table could not have seen it.
func TestLeague(t *testing.T) {
	if *inside != "" {
		return
	}
	jailtest.Require(t)
	dir := shareable(t)
	program, err := os.ReadFile(jailtest.Binary(t, jailtest.Probe))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "probe"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	outcomes := map[string]outcome{}
	for _, s := range sandboxes {
		t.Run(s.name, func(t *testing.T) {
			o := throwaway(t, s, dir)
			if o.Refused != "" && s.ours {
				t.Errorf("it did not run: %s", o.Refused)
			}
			outcomes[s.name] = o
		})
	}
	for _, a := range attacks {
		if got := outcomes[control].Answers[a.name]; got.Stopped {
			t.Errorf("%s: without any sandbox: %s; the table could not see it work", a.name,
				got.Text)
		}
	}
	if t.Failed() {
		return
	}
	text := document(t, outcomes)
	fmt.Print(text)
	if *update {
		if err := os.WriteFile(filepath.Join("..", "..", "..", "docs", "league.md"), []byte(text),
			0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// shareable makes a directory that other users may pass through.
func shareable(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "league-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// throwaway runs this test binary once more, in namespaces of its own, for one sandbox.
func throwaway(t *testing.T, s sandbox, dir string) outcome {
	t.Helper()
	args := []string{"-k", "10", hangBound, "unshare", "--mount", "--net", "--ipc", "--uts"}
	if !s.hostPIDs {
		args = append(args, "--pid", "--fork", "--mount-proc", "--kill-child")
	}
	args = append(args, os.Args[0], "-test.run=^TestInside$", "-inside="+s.name, "-shared="+dir,
		"-runsc="+*runsc)
	out, err := exec.Command("timeout", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if len(out) > 0 {
		t.Logf("%s", out)
	}
	text, err := os.ReadFile(filepath.Join(dir, s.name+".json"))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var o outcome
	if err := json.Unmarshal(text, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestInside is the part in the throwaway.
func TestInside(t *testing.T) {
	if *inside == "" {
		return
	}
	for _, s := range sandboxes {
		if s.name != *inside {
			continue
		}
		w := newWorld(t, *shared)
		o := outcome{Answers: map[string]answer{}}
		if s.ours {
			w.meetJail(t, &o)
		} else {
			w.meet(t, s, &o)
		}
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(*shared, s.name+".json"), text, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("no sandbox is called %s", *inside)
}

// firstLine is the first that is not empty.
func firstLine(s string) string {
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			return line
		}
	}
	return ""
}
