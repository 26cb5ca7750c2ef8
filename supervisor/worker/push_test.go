package worker

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPushScript pushes a commit that changes the files that were said, and none whose list was made
// to leave one out: by an object that the session has replaced, of which the session's git says that
// nothing of it has changed.
func TestPushScript(t *testing.T) {
	dir := t.TempDir()
	run := func(in []byte, name string, args ...string) (string, error) {
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Stdin = dir, bytes.NewReader(in)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a",
			"GIT_COMMITTER_EMAIL=a@example.com"}
		out, err := cmd.CombinedOutput()
		return strings.TrimSuffix(string(out), "\n"), err
	}
	git := func(args ...string) string {
		t.Helper()
		out, err := run(nil, "git", append([]string{"-C", "work"}, args...)...)
		if err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
		return out
	}
	write := func(name, text string) {
		t.Helper()
		at := filepath.Join(dir, "work", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755),
			os.WriteFile(at, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
		git("add", "--", name)
	}
	if err := os.Mkdir(filepath.Join(dir, "work"), 0o755); err != nil {
		t.Fatal(err)
	}
	git("init", "-q", "-b", "main")
	write("sub", "")
	write("README", "one")
	start := git("commit-tree", "-m", "start", git("write-tree"))
	git("update-ref", "refs/heads/main", start)
	git("clone", "-q", "--bare", ".", "../remote")
	git("rm", "-q", "sub")
	write("sub-b", "two")
	write("sub/c", "three")
	write("Makefile", "all:")
	list := func() []string {
		out := git(slices.Concat([]string{"diff", "--cached"}, listing, []string{start})...)
		return strings.Split(strings.TrimSuffix(out, "\x00"), "\x00")
	}
	honest := list()
	tree := git("write-tree")
	commit := git("commit-tree", "-p", start, "-m", "work", tree)
	git("update-ref", "refs/heads/work", commit)
	git("bundle", "create", "-q", "../bundle", "refs/heads/work", "^"+start)
	git("replace", start, git("commit-tree", "-m", "start", tree))
	bundle, err := os.ReadFile(filepath.Join(dir, "bundle"))
	if err != nil {
		t.Fatal(err)
	}
	script := strings.NewReplacer("/tmp/push", "push", "protocol.https", "protocol.file").Replace(pushScript)
	push := func(files []string) (string, error) {
		if err := os.RemoveAll(filepath.Join(dir, "push")); err != nil {
			t.Fatal(err)
		}
		return run(bundle, "sh", "-c", script, "sh", filepath.Join(dir, "remote"), start, commit, "task",
			sumOf(files))
	}
	for _, files := range [][]string{list(), honest[1:], append([]string{"x"}, honest...)} {
		if out, err := push(files); err == nil || out != "the commit changes other files than was said" {
			t.Errorf("%q: %v, %s", files, err, out)
		}
	}
	if out, err := run(nil, "git", "-C", "remote", "rev-parse", "-q", "--verify", "task"); err == nil {
		t.Errorf("the remote has %s", out)
	}
	if out, err := push(honest); err != nil {
		t.Errorf("%q: %v\n%s", honest, err, out)
	}
	if out, err := run(nil, "git", "-C", "remote", "rev-parse", "task"); err != nil || out != commit {
		t.Errorf("the remote has %s, want %s", out, commit)
	}
}
