package workspace

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// An oracle is a second judge of what changed: copies of the tree before and of the shadow,
// compared by git diff --no-index and rsync -n.
type oracle struct {
	t                    *testing.T
	dir                  string
	real, before, shadow string
	rsync                bool
}

func newOracle(t *testing.T, f *fixture) *oracle {
	dir := filepath.Join(filepath.Dir(f.real), "oracle")
	must(t, os.RemoveAll(dir))
	o := &oracle{t: t, dir: dir, real: f.real, before: filepath.Join(dir, "before"),
		shadow: filepath.Join(dir, "shadow")}
	must(t, os.MkdirAll(o.before, 0o755))
	must(t, os.MkdirAll(o.shadow, 0o755))
	if out, err := exec.Command("cp", "-a", f.real+"/.", o.before).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
	_, err := exec.LookPath("rsync")
	o.rsync = err == nil
	return o
}

// changesAre compares a list of changes, as far as git knows such, with what git finds.
func (o *oracle) changesAre(changes []Change) {
	o.t.Helper()
	var ours []string
	for _, c := range changes {
		if gitSide(c.Before) != gitSide(c.After) {
			ours = append(ours, string(c.Path))
			continue
		}
		if c.Before != nil && c.After != nil && c.Before.Type == File && c.After.Type == File &&
			c.Before.SHA256 != c.After.SHA256 {
			ours = append(ours, string(c.Path))
		}
	}
	cmd := exec.Command("git", "diff", "--no-index", "--no-renames", "--no-ext-diff",
		"--name-status", "-z", "before", "shadow")
	cmd.Dir = o.dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) ||
		exit.ExitCode() != 1) {
		o.t.Fatalf("git diff: %v", err)
	}
	var gits []string
	for i, name := range strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if _, path, ok := strings.Cut(name, "/"); ok && i%2 == 1 { // each after its status
			gits = append(gits, path)
		}
	}
	slices.Sort(ours)
	slices.Sort(gits)
	if diff := cmp.Diff(slices.Compact(gits), ours); diff != "" {
		o.t.Fatalf("git sees other changes: %s", diff)
	}
}

// gitSide is what git knows of one side beside the content: nothing of directories, and one bit of
// the mode.
func gitSide(n *Node) string {
	switch {
	case n == nil || n.Type == Dir:
		return ""
	case n.Type == Link:
		return "link " + string(n.Target)
	case n.Mode&0o100 != 0:
		return "executable"
	}
	return "file"
}

// same has rsync compare the real directory with a copy, by content; with times also those of
// files.
func (o *oracle) same(want string, times bool) {
	o.t.Helper()
	if !o.rsync {
		return
	}
	args := []string{"-n", "-rlpc", "--delete", "--itemize-changes"}
	if times {
		args = append(args, "-tO", "-J") // of files only
	}
	out, err := exec.Command("rsync", append(args, want+"/", o.real+"/")...).CombinedOutput()
	if err != nil || len(bytes.TrimSpace(out)) > 0 {
		o.t.Fatalf("rsync sees a difference to %s: %v\n%s", filepath.Base(want), err, out)
	}
}
