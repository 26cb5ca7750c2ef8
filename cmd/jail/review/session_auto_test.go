package review_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// autoPolicy is build with commit = "auto".
func autoPolicy(h *cmdtest.Host) string {
	h.T.Helper()
	path := filepath.Join(h.T.TempDir(), "auto.toml")
	if err := os.WriteFile(path, []byte("policy = 1\nname = \"auto\"\ninclude = [\"build\"]\n"+
		"[workspace]\ncommit = \"auto\"\n"), 0o644); err != nil {
		h.T.Fatal(err)
	}
	return path
}

// TestSessionAutoCommit: a session with commit = "auto" takes plain changes after each invocation,
// and leaves what is protected, risky or in conflict. What is left is said once, and changes no
// exit code.
func TestSessionAutoCommit(t *testing.T) {
	h := cmdtest.NewNative(t)
	d := h.Daemon()
	h.Files(map[string]string{"mod": "0\n", "both": "0\n"})
	id := h.Session("--id", "s", "--policy", autoPolicy(h))
	h.Files(map[string]string{"both": "person\n"})
	o := h.Exec(id, "--", "sh", "-c",
		"echo 1 >mod; echo 1 >both; echo 1 >new; echo x >package.json; exit 3")
	if o.Code != 3 || !strings.Contains(o.Err, "left for you, and not committed: both: conflict: "+
		"the real file was changed since the run began; and 1 more (jail diff lists") {
		t.Errorf("%+v", o)
	}
	realFile(h, "mod", "1\n")
	realFile(h, "new", "1\n")
	realFile(h, "both", "person\n")
	if o := h.Exec(id, "--", "cat", "mod"); o.Code != 0 || o.Err != "" {
		t.Errorf("what is left is said again: %+v", o)
	}
	r := h.ObjectOf("session", "exec", "--json", id, "--", "sh", "-c", "echo 2 >mod; mkfifo p")
	if r.Commit == nil || r.Commit.ID == "" || r.Commit.Changes.Modified != 1 ||
		len(r.Commit.Left) != 1 || r.Commit.Left[0].Path != "p" || r.Error != nil {
		t.Errorf("%+v", r.Commit)
	}
	realFile(h, "mod", "2\n")
	// Each commit is on record twice, and a look at a session of which nothing was taken is not.
	if n := len(h.Records(id, "workspace.committed")); n != 4 {
		t.Errorf("%d records", n)
	}
	h.Wants(h.Jail("revert", id, "mod"), 0, "")
	realFile(h, "mod", "1\n")

	// While another invocation runs, nothing of either is taken.
	live := h.LiveWith(h.Command("session", "exec", id, "--id", "e1", "--", "sh", "-c",
		"echo half >torn; while read l; do echo got $l; done; echo whole >torn"), "e1")
	r = h.ObjectOf("session", "exec", "--json", id, "--", "sh", "-c", "echo 3 >other")
	if r.Commit == nil || !r.Commit.Waits || r.Commit.ID != "" {
		t.Errorf("beside another invocation: %+v", r.Commit)
	}
	for _, name := range []string{"torn", "other"} {
		if _, err := os.Lstat(filepath.Join(h.Work, name)); err == nil {
			t.Errorf("%s was committed while an invocation ran", name)
		}
	}
	live.In.Close()
	h.Wants(live.Wait(), 0, "")
	realFile(h, "torn", "whole\n")
	realFile(h, "other", "3\n")
	if r := h.ObjectOf("session", "stop", "--json", id); r.Workspace != "kept" || r.Error != nil {
		t.Errorf("stop: %+v %v", r, r.Error)
	}
	realFile(h, "both", "person\n")
	h.Wants(h.Jail("commit", "--theirs", id, "both"), 0, "")
	realFile(h, "both", "1\n")
	h.Discard(id)

	// What an invocation leaves that the end of the session kills is taken by the end, and a session
	// with --keep takes nothing.
	id = h.Session("--id", "end", "--policy", autoPolicy(h))
	live = h.LiveWith(h.Command("session", "exec", id, "--id", "e2", "--", "sh", "-c",
		"echo end >end; while read l; do echo got $l; done"), "e2")
	if r := h.ObjectOf("session", "stop", "--json", id); r.Workspace != "committed" {
		t.Errorf("stop: %+v", r)
	}
	live.Wait()
	realFile(h, "end", "end\n")
	h.Wants(h.Jail("revert", id), 0, "")
	h.Discard(id)
	id = h.Session("--id", "kept", "--keep", "--policy", autoPolicy(h))
	h.Wants(h.Exec(id, "--", "sh", "-c", "echo 1 >kept"), 0, "")
	h.Wants(h.Jail("session", "stop", id), 0, "")
	if _, err := os.Lstat(filepath.Join(h.Work, "kept")); err == nil {
		t.Error("a session with --keep committed")
	}
	h.Discard(id)
	d.Stop()
}

// TestSessionMerge: what a person and the tools of an open session change in different places of a
// file is merged, in the same place it is a conflict by name.
func TestSessionMerge(t *testing.T) {
	h := cmdtest.NewNative(t)
	d := h.Daemon()
	text := func(first, last string) string {
		return first + "\n2\n3\n4\n5\n6\n7\n" + last + "\n"
	}
	h.Files(map[string]string{"a": text("1", "8"), "b": text("1", "8")})
	id := h.Session("--id", "s", "--profile", "build")
	h.Wants(h.Exec(id, "--", "sed", "-i", "1s/.*/tool/", "a", "b"), 0, "")
	h.Files(map[string]string{"a": text("1", "person"), "b": text("person", "8")})
	h.Wants(h.Jail("commit", "--merge", id), 126, "b: .*both sides changed the same lines")
	realFile(h, "a", text("1", "person"))
	h.Wants(h.Jail("commit", "--merge", id, "a"), 0, "")
	realFile(h, "a", text("tool", "person"))
	// A file that the person changes first has no base.
	h.Files(map[string]string{"c": text("1", "8")})
	h.Wants(h.Exec(id, "--", "sh", "-c", "sed -i 2s/.*/again/ a; sed -i 1s/.*/tool/ c"), 0, "")
	h.Wants(h.Jail("commit", "--merge", id, "a"), 0, "")
	h.Wants(h.Jail("session", "stop", id), 0, "")
	h.Discard(id)
	d.Stop()
}
