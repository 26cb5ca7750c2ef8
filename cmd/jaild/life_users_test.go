package main_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// T-501, T-505, T-506: a caller is who the kernel says: they see, end, review and commit what is
// theirs, with their own rights, and nothing else.
func TestUsers(t *testing.T) {
	h := cmdtest.New(t)
	d := h.Daemon()
	other := func(args ...string) cmdtest.Outcome {
		t.Helper()
		return h.Run(cmdtest.As(h.Command(args...), cmdtest.Stranger))
	}
	h.Wants(other("run", "--", "true"), 126, "socket .*: permission denied")
	h.Wants(other("ps"), 126, "socket .*: permission denied")
	d.Admit()

	own, roots, secret := filepath.Join(h.Root, "own"), h.Work, filepath.Join(h.Root, "secret")
	for dir, mode := range map[string]os.FileMode{own: 0o700, secret: 0o700} {
		if err := os.Mkdir(dir, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(own, cmdtest.Stranger, cmdtest.Stranger); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(secret, "key"), []byte("top secret"), 0o644); err != nil {
		t.Fatal(err)
	}

	// Runs.
	mine := h.Live("roots")
	cmd := cmdtest.As(h.Command("run", "--workspace", own, "--id", "others", "--", h.Probe, "lines"),
		cmdtest.Stranger)
	theirs := h.LiveWith(cmd, "others")
	if ids := liveIDs(t, other("ps", "--json")); ids != "others" {
		t.Errorf("the other user sees %q", ids)
	}
	if ids := liveIDs(t, h.Jail("ps", "--json")); ids != "others roots" {
		t.Errorf("root sees %q", ids)
	}
	h.Wants(other("kill", "roots"), 127, `no run "roots" is running`)
	h.Wants(other("kill", "nobodys"), 127, `no run "nobodys" is running`)
	h.Wants(other("inspect", "roots"), 127, `no run is called "roots"`)
	mine.Says("still here")
	h.Wants(h.Jail("kill", "--signal", "TERM", "roots"), 0, "")
	if o := mine.Wait(); o.Code != 143 {
		t.Errorf("root's run: %+v", o)
	}
	h.Wants(other("kill", "others"), 0, "")
	if o := theirs.Wait(); o.Code != 137 {
		t.Errorf("the other user's run: %+v", o)
	}
	if r := h.Finished("others"); r.Actor.UID != cmdtest.Stranger {
		t.Errorf("%+v", r)
	}

	// Records: they see those of their own runs, and not that there are others. Root sees all.
	seen := func(o cmdtest.Outcome) (runs string, n int) {
		t.Helper()
		all := map[string]bool{}
		for line := range strings.Lines(o.Out) {
			var r cmdtest.Record
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatalf("%v: %+v", err, o)
			}
			all[r.Run] = true
			n++
		}
		return strings.Join(slices.Sorted(maps.Keys(all)), " "), n
	}
	if runs, n := seen(other("audit", "query", "--json")); runs != "others" || n < 2 {
		t.Errorf("the other user sees %d records of %q", n, runs)
	}
	if runs, _ := seen(h.Jail("audit", "query", "--json")); runs != " others roots" {
		t.Errorf("root sees records of %q", runs)
	}
	for _, of := range [][]string{{"--run", "roots"}, {"--run", "nobodys"}, {"--user", "0"},
		{"--type", "daemon.started"}, {"--tool", "none"}} {
		if o := other(append([]string{"audit", "query", "--json"}, of...)...); o.Code != 0 ||
			o.Out != "" || o.Err != "" {
			t.Errorf("%q: %+v", of, o)
		}
	}
	if runs, n := seen(other("audit", "query", "--json", "--type", "run.finished", "--since",
		"1h")); runs != "others" || n != 1 {
		t.Errorf("the other user sees %d ends, of %q", n, runs)
	}
	h.Says(other("audit", "report", "others"), 0, "only who may read the log can verify it")
	h.Wants(other("audit", "report", "roots"), 127, `no record is of "roots"`)
	h.Wants(other("audit", "report", "nobodys"), 127, `no record is of "nobodys"`)
	h.Wants(other("audit", "query", "--log", filepath.Join(h.State, "audit")), 126,
		"permission denied")
	h.Wants(other("audit", "verify"), 126, "permission denied")

	// Workspaces that they cannot read, or that are not theirs.
	h.Wants(other("run", "--workspace", secret, "--", "cat", "key"), 126,
		"workspace .*secret: permission denied")
	h.Wants(other("run", "--workspace", filepath.Join(h.State, "state", "runs"), "--", "ls"), 126,
		"permission denied|belongs to uid 0")
	// T-537
	h.Wants(other("run", "--workspace", filepath.Join(h.State, "audit"), "--", "ls"), 126,
		"permission denied")
	h.Wants(other("run", "--workspace", roots, "--", "touch", "new"), 126,
		"belongs to uid 0, not to uid 12345")
	module := filepath.Join(secret, "x.wasm")
	if err := os.WriteFile(module, []byte("top secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	h.Wants(other("run", "--no-workspace", "--", module), 126, "module .*x.wasm: permission denied")

	// Shadows.
	if o := h.Jail("run", "--id", "root-shadow", "--", "touch", "roots-file"); o.Code != 0 {
		t.Fatalf("%+v", o)
	}
	for _, verb := range []string{"diff", "commit", "discard"} {
		h.Wants(other(verb, "root-shadow"), 127, `no shadow is kept for run "root-shadow"`)
		h.Wants(other(verb, "nobodys"), 127, `no shadow is kept for run "nobodys"`)
	}
	if o := other("workspaces"); o.Code != 0 || strings.Contains(o.Out, "root-shadow") {
		t.Errorf("workspaces: %+v", o)
	}
	if _, err := os.Stat(filepath.Join(roots, "roots-file")); err == nil {
		t.Error("somebody committed root's shadow")
	}
	h.Discard("root-shadow")

	// A commit is made with the caller's own rights.
	for _, id := range []string{"owned", "taken"} {
		if o := other("run", "--workspace", own, "--id", id, "--", "touch", id); o.Code != 0 {
			t.Fatalf("%+v", o)
		}
	}
	h.Wants(other("commit", "owned"), 0, "")
	info, err := os.Stat(filepath.Join(own, "owned"))
	if err != nil || ownerOf(info) != cmdtest.Stranger {
		t.Errorf("owner %v, %v", info, err)
	}
	if err := os.Chown(own, 0, 0); err != nil {
		t.Fatal(err)
	}
	h.Wants(other("commit", "taken"), 126, "permission denied")
	if _, err := os.Stat(filepath.Join(own, "taken")); err == nil {
		t.Error("a commit wrote where its caller may not")
	}
	h.Wants(other("discard", "taken"), 0, "")
	// What is kept of it for a revert.
	h.Wants(other("discard", "owned"), 0, "")
	d.Stop()
}

func liveIDs(t *testing.T, o cmdtest.Outcome) string {
	t.Helper()
	var runs []struct{ ID string }
	if err := json.Unmarshal([]byte(o.Out), &runs); err != nil {
		t.Fatalf("%v: %+v", err, o)
	}
	var ids []string
	for _, r := range runs {
		ids = append(ids, r.ID)
	}
	return strings.Join(cmdtest.Sorted(ids), " ")
}
