package review_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// gitHost is a host whose directory is a repository of one commit, and a git for scripts in it.
func gitHost(t *testing.T) (h *cmdtest.Host, git func(script string) string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	h = cmdtest.New(t)
	git = func(script string) string {
		t.Helper()
		cmd := exec.Command("sh", "-ec", gitAs+script)
		cmd.Dir = h.Work
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", script, err, out)
		}
		return string(out)
	}
	git("g init -q; echo a >a; g add -A; g commit -qm one")
	return h, git
}

// gitAs begins a script that uses git as g.
const gitAs = "g() { git -c user.name=x -c user.email=x@example.com " +
	"-c init.defaultBranch=main \"$@\"; }; "

// A review says what a change set does to a repository, and lists git's own files on request; what
// is protected is listed all the same.
func TestGitReview(t *testing.T) {
	h, git := gitHost(t)
	h.Wants(h.Jail("run", "--profile", "build", "--id", "x", "--", "sh", "-ec",
		gitAs+`echo b >>a; g commit -qam "agent: add line"; g tag v1
		echo x >.git/hooks/post-commit; echo new >plain`), 0, "")
	short := strings.Fields(git("git rev-parse --short=7 HEAD"))[0]
	o := h.Jail("diff", "x")
	h.Wants(o, 0, "")
	for _, want := range []string{"# git: main " + short + "..",
		`, 1 commit: "agent: add line"` + "\n",
		"# git: new tag v1 at ", "# git: index changed\n", "of objects, logs and refs",
		".git/hooks/post-commit", "# A plain", "+new\n"} {
		if !strings.Contains(o.Out, want) {
			t.Errorf("no %q in %s", want, o.Out)
		}
	}
	for _, no := range []string{".git/objects", ".git/logs", ".git/refs"} {
		if strings.Contains(o.Out, no) {
			t.Errorf("%s is in %s", no, o.Out)
		}
	}
	all := h.Jail("diff", "--all", "x")
	for _, want := range []string{"# git: main ", "# A .git/objects/", "# A .git/refs/tags/v1",
		"diff --git a/.git/refs/heads/main b/.git/refs/heads/main"} {
		if !strings.Contains(all.Out, want) {
			t.Errorf("no %q in %s", want, all.Out)
		}
	}
	lines := strings.Split(strings.TrimSpace(h.Jail("diff", "--json", "x").Out), "\n")
	var last struct {
		Summary struct {
			Git []struct {
				Path string
				Refs []struct{ Ref, Before, After string }
			}
		}
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil ||
		len(last.Summary.Git) != 1 || len(last.Summary.Git[0].Refs) != 2 {
		t.Errorf("the summary is %s (%v)", lines[len(lines)-1], err)
	}
	if !strings.Contains(strings.Join(lines, "\n"), `"path":".git/refs/tags/v1"`) {
		t.Error("the changes themselves are not in the JSON")
	}
	// The branch that is checked out is merged by a person; under another name it can be had.
	h.Wants(h.Jail("commit", "--git-only", "main", "x"), 126, "is checked out")
	h.Wants(h.Jail("commit", "--git-only", "main", "--theirs", "x"), 2, "")
	h.Wants(h.Jail("commit", "--git-only", "a..b", "x"), 2, "no name of a branch")
	o = h.Jail("commit", "--git-only", "main:agent/main", "x")
	h.Wants(o, 0, "")
	if !strings.Contains(o.Out,
		"git: new branch agent/main at "+last.Summary.Git[0].Refs[0].After[:7]) {
		t.Errorf("it says %s", o.Out)
	}
	got := git("g fsck --strict 2>&1; g log --format=%s agent/main; g log --format=%s; g tag")
	if !strings.HasSuffix(got, "agent: add line\none\none\n") {
		t.Errorf("the repository has %q", got)
	}
	if r := h.Records("x", "workspace.committed"); len(r) < 2 ||
		!strings.Contains(r[len(r)-1].Git, "agent/main") {
		t.Errorf("the records are %+v", r)
	}
	h.Wants(h.Jail("revert", "x"), 0, "")
	if got := git("g branch"); strings.Contains(got, "agent") {
		t.Errorf("after the revert: %s", got)
	}
	h.Wants(h.Jail("discard", "x"), 0, "")
}
