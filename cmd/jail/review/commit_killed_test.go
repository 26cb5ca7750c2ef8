package review_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// T-324: the daemon is killed while a commit changes many files of a directory, and the directory
// is moved before the next one is there. On the same file system that one finds it and undoes the
// commit. From another one it comes back as a copy: then nothing is said to be undone, until
// somebody gives the commit up.
func TestCommitKilledAndMoved(t *testing.T) {
	const files = 800
	h := cmdtest.New(t)
	dir := filepath.Join(h.Work, "d")
	for i := range files {
		h.Write(map[string]string{fmt.Sprintf("d/f%d", i): "mine\n"})
	}
	d := h.Daemon()
	h.Wants(h.Jail("run", "--profile", "build", "--id", "many", "--keep", "--quiet", "--", "sh",
		"-c", "for f in d/*; do echo tool >$f; done"), 0, "")
	kill := func() {
		t.Helper()
		cmd := h.Command("commit", "many")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmdtest.Eventually(t, "the commit writes", func() bool {
			return len(cmdtest.NamesIn(dir)) > files+files/4
		})
		d.Kill()
		cmd.Wait()
	}
	counts := func(dir string) (mine, ours int) {
		for _, name := range cmdtest.NamesIn(dir) {
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
	moved := filepath.Join(h.Root, "moved")
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	d = h.Daemon()
	// It answers when it has recovered.
	h.Wants(h.Jail("workspaces"), 0, "")
	if mine, ours := counts(moved); mine != files || ours != 0 {
		t.Fatalf("after a recovery: %d files as they were, %d names of jail's", mine, ours)
	}
	if err := os.Rename(moved, dir); err != nil {
		t.Fatal(err)
	}
	if r := h.Records("many", "workspace.committed"); len(r) != 2 || !strings.Contains(r[1].Error,
		"has been undone") {
		t.Errorf("records: %+v", r)
	}

	kill()
	elsewhere, err := os.MkdirTemp("/dev/shm", "jail-test-")
	if err != nil {
		t.Skip("there is no other file system to move to")
	}
	t.Cleanup(func() { os.RemoveAll(elsewhere) })
	for _, move := range [][]string{{dir, elsewhere}, {filepath.Join(elsewhere, "d"), h.Work}} {
		if out, err := exec.Command("mv", move...).CombinedOutput(); err != nil {
			t.Fatalf("mv: %v: %s", err, out)
		}
		if d != nil {
			d = nil
			h.Daemon().Logs = "settle commits that were cut off"
		}
		var all []shadows.WorkspaceInfo
		o := h.Jail("workspaces", "--json")
		if err := json.Unmarshal([]byte(o.Out), &all); err != nil || len(all) != 1 ||
			all[0].State != "committing" || !strings.Contains(all[0].Stuck, "directory d ") {
			t.Fatalf("workspaces: %v %s", err, o.Out)
		}
		if o := h.Jail("workspaces"); !strings.Contains(o.Out,
			"stuck: many: the commit was cut off, and is not undone yet: directory d ") {
			t.Errorf("workspaces: %+v", o)
		}
		h.Wants(h.Jail("diff", "many"), 126,
			"directory d (?s:.*)jail discard --force many gives it up")
		h.Wants(h.Jail("commit", "many"), 126, "directory d ")
		h.Wants(h.Jail("discard", "many"), 126, "directory d ")
	}
	if r := h.Records("many", "workspace.committed"); len(r) != 3 || !r[2].Begun {
		t.Errorf("records: %+v", r)
	}
	h.Wants(h.Jail("discard", "--force", "many"), 0, "")
	if r := h.Records("many", "workspace.discarded"); len(r) != 1 || !strings.Contains(r[0].GaveUp,
		"directory d ") {
		t.Errorf("records: %+v", r)
	}
}

// The daemon is killed when a commit or a revert is on record as begun, and nothing is changed yet.
// The next daemon records that, once.
func TestCommitKilledBeforeAnyChange(t *testing.T) {
	h := cmdtest.New(t)
	h.Files(map[string]string{"f": "mine\n"})
	d := h.Daemon()
	h.Wants(h.Jail("run", "--profile", "build", "--id", "r", "--keep", "--quiet", "--", "sh", "-c",
		"echo tool >f"), 0, "")
	kill := func(command string) {
		t.Helper()
		kind := "workspace.committed"
		if command == "revert" {
			kind = "workspace.reverted"
		}
		// A commit waits ten seconds for this lock.
		dir, err := os.Open(h.Work)
		if err == nil {
			err = syscall.Flock(int(dir.Fd()), syscall.LOCK_EX)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		for {
			before := len(h.Records("r", kind))
			cmd := h.Command(command, "r")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			cmdtest.Eventually(t, "the "+command+" is on record", func() bool {
				return len(h.Records("r", kind)) > before
			})
			d.Kill()
			cmd.Wait()
			for range 2 {
				d = h.Daemon()
				h.Wants(h.Jail("workspaces"), 0, "")
				d.Stop()
			}
			d = h.Daemon()
			all := h.Records("r", kind)[before:]
			if len(all) != 2 || !all[0].Begun || all[1].Begun {
				t.Fatalf("%s: records %+v", command, all)
			}
			if strings.Contains(all[1].Error, "it was cut off before anything was changed") {
				return
			}
			if !strings.Contains(all[1].Error, workspace.ErrBusy.Error()) {
				t.Fatalf("%s: records %+v", command, all)
			}
			// It had waited for ten seconds before it was killed.
		}
	}
	kill("commit")
	h.Holds("f", "mine\n")
	h.Wants(h.Jail("commit", "r"), 0, "")
	kill("revert")
	h.Holds("f", "tool\n")
	h.Wants(h.Jail("revert", "r"), 0, "")
	h.Holds("f", "mine\n")
	h.Discard("r")
	d.Stop()
}
