package cmd_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// T-324: the daemon is killed while a commit changes many files of a directory, and the directory
// is moved before the next one is there. On the same file system that one finds it and undoes the
// commit. From another one it comes back as a copy: then nothing is said to be undone, until
// somebody gives the commit up.
func TestCommitKilledAndMoved(t *testing.T) {
	const files = 800
	h := newHost(t)
	dir := filepath.Join(h.work, "d")
	for i := range files {
		h.write(map[string]string{fmt.Sprintf("d/f%d", i): "mine\n"})
	}
	d := h.daemon()
	h.wants(h.jail("run", "--profile", "build", "--id", "many", "--keep", "--quiet", "--", "sh",
		"-c", "for f in d/*; do echo tool >$f; done"), 0, "")
	kill := func() {
		t.Helper()
		cmd := h.command("commit", "many")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the commit writes", func() bool {
			return len(namesIn(dir)) > files+files/4
		})
		d.kill()
		cmd.Wait()
	}
	counts := func(dir string) (mine, ours int) {
		for _, name := range namesIn(dir) {
			if strings.HasPrefix(name, ".jail-") {
				ours++
			} else if text, err := os.ReadFile(filepath.Join(dir, name)); err == nil &&
				string(text) == "mine\n" {
				mine++
			}
		}
		return mine, ours
	}

	kill()
	moved := filepath.Join(h.root, "moved")
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	d = h.daemon()
	// It answers when it has recovered.
	h.wants(h.jail("workspaces"), 0, "")
	if mine, ours := counts(moved); mine != files || ours != 0 {
		t.Fatalf("after a recovery: %d files as they were, %d names of jail's", mine, ours)
	}
	if err := os.Rename(moved, dir); err != nil {
		t.Fatal(err)
	}
	if r := h.records("many", "workspace.committed"); len(r) != 2 || !strings.Contains(r[1].Error,
		"has been undone") {
		t.Errorf("records: %+v", r)
	}

	kill()
	elsewhere, err := os.MkdirTemp("/dev/shm", "jail-test-")
	if err != nil {
		t.Skip("there is no other file system to move to")
	}
	t.Cleanup(func() { os.RemoveAll(elsewhere) })
	for _, move := range [][]string{{dir, elsewhere}, {filepath.Join(elsewhere, "d"), h.work}} {
		if out, err := exec.Command("mv", move...).CombinedOutput(); err != nil {
			t.Fatalf("mv: %v: %s", err, out)
		}
		if d != nil {
			d = nil
			h.daemon().logs = "settle commits that were cut off"
		}
		var all []shadows.WorkspaceInfo
		o := h.jail("workspaces", "--json")
		if err := json.Unmarshal([]byte(o.out), &all); err != nil || len(all) != 1 ||
			all[0].State != "committing" || !strings.Contains(all[0].Stuck, "directory d ") {
			t.Fatalf("workspaces: %v %s", err, o.out)
		}
		if o := h.jail("workspaces"); !strings.Contains(o.out,
			"stuck: many: the commit was cut off, and is not undone yet: directory d ") {
			t.Errorf("workspaces: %+v", o)
		}
		h.wants(h.jail("diff", "many"), 126,
			"directory d (?s:.*)jail discard --force many gives it up")
		h.wants(h.jail("commit", "many"), 126, "directory d ")
		h.wants(h.jail("discard", "many"), 126, "directory d ")
	}
	if r := h.records("many", "workspace.committed"); len(r) != 3 || !r[2].Begun {
		t.Errorf("records: %+v", r)
	}
	h.wants(h.jail("discard", "--force", "many"), 0, "")
	if r := h.records("many", "workspace.discarded"); len(r) != 1 || !strings.Contains(r[0].GaveUp,
		"directory d ") {
		t.Errorf("records: %+v", r)
	}
}
