package worker

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A forge is a directory with a repository of people's, and a bare one to which they push.
type forge struct {
	t          *testing.T
	tree, bare string
}

// newForge returns a forge whose branch main has one file.
func newForge(t *testing.T) *forge {
	t.Helper()
	dir := t.TempDir()
	f := &forge{t, filepath.Join(dir, "tree"), filepath.Join(dir, "bare")}
	if err := os.Mkdir(f.tree, 0o755); err != nil {
		t.Fatal(err)
	}
	f.git("", "init", "-q", "-b", "main")
	f.git("", "init", "-q", "-b", "main", "--bare", f.bare)
	f.write("a")
	f.git("", "add", "a")
	f.git("", "commit", "-qm", "first")
	f.git("", "push", "-q", f.bare, "main")
	return f
}

// git calls git in the repository of people's, and returns what it prints, without the end of the line.
func (f *forge) git(in string, args ...string) string {
	f.t.Helper()
	return strings.TrimSuffix(f.output(in, args...), "\n")
}

// output calls git there, and returns all that it prints.
func (f *forge) output(in string, args ...string) string {
	f.t.Helper()
	cmd := exec.Command("git", append([]string{"-C", f.tree, "-c", "user.name=t", "-c", "user.email=t@e"},
		args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
	cmd.Stdin = strings.NewReader(in)
	out, err := cmd.Output()
	if err != nil {
		f.t.Fatalf("git %q: %v", args, err)
	}
	return string(out)
}

func (f *forge) write(name string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.tree, name), []byte(name), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// run runs a script of the worker's, outside of any jail, where the bare repository may be reached. The
// URL of that is its first argument.
func (f *forge) run(script, in string, args ...string) (dir, out string, err error) {
	f.t.Helper()
	dir = f.t.TempDir()
	script = strings.NewReplacer("/tmp/push", filepath.Join(dir, "push"),
		"protocol.https.allow", "protocol.file.allow").Replace(script)
	cmd := exec.Command("sh", append([]string{"-c", script, "sh", "file://" + f.bare}, args...)...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(in)
	text, err := cmd.CombinedOutput()
	return dir, string(text), err
}

// TestCloneScript: a clone says where branches are, and names that are git's own in any spelling do not
// come in. The settings of the host count for nothing.
func TestCloneScript(t *testing.T) {
	f := newForge(t)
	system := filepath.Join(t.TempDir(), "gitconfig")
	if err := os.WriteFile(system, []byte("[url \"file:///none/\"]\n\tinsteadOf = file:///\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GIT_CONFIG_SYSTEM", system)
	t.Setenv("GIT_CONFIG_NOSYSTEM", "0")
	if err := exec.Command("git", "ls-remote", "file://"+f.bare).Run(); err == nil {
		t.Error("control: git does not read the settings of the host")
	}
	first := f.git("", "rev-parse", "HEAD")
	f.git("", "push", "-q", f.bare, "main:refs/heads/agent/t")
	head := "commit " + first + " refs/remotes/origin/HEAD refs/remotes/origin/main\n"
	branch := "commit " + first + " refs/remotes/origin/agent/t \n"
	for base, want := range map[string]string{"HEAD": head + branch,
		"main": "commit " + first + " refs/remotes/origin/main \n" + branch, "none": branch} {
		dir, out, err := f.run(cloneScript, "", base, "agent/t")
		// The order is by the names.
		if err != nil || len(out) != len(want) || !strings.Contains(out, branch) {
			t.Errorf("base %s: %q, %v; want %q", base, out, err, want)
		}
		head, err := os.ReadFile(filepath.Join(dir, ".git/HEAD"))
		if _, errFile := os.Stat(filepath.Join(dir, "a")); err != nil || errFile != nil ||
			string(head) != "ref: refs/heads/agent/t\n" {
			t.Errorf("base %s: HEAD is %q, %v, %v", base, head, err, errFile)
		}
	}
	blob := f.git("", "rev-parse", "HEAD:a")
	inner := f.git("100644 blob "+blob+"\tconfig\n", "mktree")
	for _, entry := range []string{"040000 tree " + inner + "\t.git", "040000 tree " + inner + "\t.GIT",
		"040000 tree " + inner + "\tgit~1", "040000 tree " + inner + "\t.g\u200cit",
		"040000 tree " + inner + "\t..", "120000 blob " + blob + "\t.gitmodules"} {
		commit := f.git("", "commit-tree", f.git(entry+"\n", "mktree"), "-m", "evil")
		// Control: git as it is takes the objects.
		f.git("", "push", "-qf", f.bare, commit+":refs/heads/main")
		dir, out, err := f.run(cloneScript, "", "HEAD", "agent/t")
		if left, readErr := os.ReadDir(dir); err == nil || readErr != nil || len(left) != 0 {
			t.Errorf("%q: %v, %v: %s; %v", entry, err, readErr, out, left)
		}
	}
}

// TestSendScript: a commit is pushed that follows the start and changes just the names that the session
// said. What the session says may be a lie.
func TestSendScript(t *testing.T) {
	f := newForge(t)
	start := f.git("", "rev-parse", "HEAD")
	f.write("b")
	f.write("Makefile")
	f.git("", "add", "-A")
	after := f.git("", "write-tree")
	// A tree that git makes of anything, and that no checkout may meet.
	evil := f.git("040000 tree "+after+"\t.git\n", "mktree")
	for _, c := range []struct {
		name    string
		parents []string
		said    string
		why     string
	}{
		{"names that are not said", []string{"-p", start}, "b\x00", "other files than was said"},
		{"names that are not changed", []string{"-p", start}, "Makefile\x00b\x00c\x00",
			"other files than was said"},
		{"another parent", nil, "Makefile\x00b\x00", "does not follow"},
		{"a tree with .git", []string{"-p", start}, ".git/Makefile\x00.git/a\x00.git/b\x00a\x00",
			"contains '.git'"},
		{"as the session said", []string{"-p", start}, "Makefile\x00b\x00", ""},
	} {
		tree := after
		if c.why == "contains '.git'" {
			tree = evil
		}
		commit := f.git("", append([]string{"commit-tree", tree, "-m", "work"}, c.parents...)...)
		_, out, err := f.run(sendScript, f.pack(start, commit), start, commit, "agent/t",
			fmt.Sprintf("%x", sha256.Sum256([]byte(c.said))))
		pushed := exec.Command("git", "-C", f.bare, "rev-parse", "-q", "--verify", "agent/t").Run() == nil
		if (err == nil) != (c.why == "") || !strings.Contains(out, c.why) || pushed != (c.why == "") {
			t.Errorf("%s: %v: %s; pushed: %v", c.name, err, out, pushed)
		}
	}
}

// pack returns what the session sends of a commit.
func (f *forge) pack(start, commit string) string {
	f.t.Helper()
	cmd := exec.Command("sh", "-c", hardenedGit+packed+`packed "$1" "$2" "$3"`, "sh", start,
		f.git("", "rev-parse", start+"^{tree}"), commit)
	cmd.Dir = f.tree
	out, err := cmd.Output()
	if err != nil {
		f.t.Fatal(err)
	}
	return string(out)
}

// TestSendScriptOfOldStart: a commit of a large tree is sent as what is new in it, and can be pushed
// also where no ref of the remote is at its start any more.
func TestSendScriptOfOldStart(t *testing.T) {
	f := newForge(t)
	f.write(".gitattributes")
	for _, dir := range []string{"x/y/z", "other"} {
		if err := os.MkdirAll(filepath.Join(f.tree, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		f.write(dir + "/a")
		f.write(dir + "/b")
	}
	f.git("", "add", "-A")
	f.git("", "commit", "-qm", "more")
	start := f.git("", "rev-parse", "HEAD")
	f.git("", "push", "-q", f.bare, "main")
	f.git("", "commit", "-q", "--allow-empty", "-m", "somebody else's")
	f.git("", "push", "-q", f.bare, "main")
	f.git("", "checkout", "-q", start)
	f.git("", "rm", "-q", "x/y/z/a", "other/a", "other/b")
	f.write("x/y/c")
	f.git("", "add", "-A")
	commit := f.git("", "commit-tree", f.git("", "write-tree"), "-p", start, "-m", "work")
	const names = "other/a\x00other/b\x00x/y/c\x00x/y/z/a\x00"
	_, out, err := f.run(sendScript, f.pack(start, commit), start, commit, "agent/t",
		fmt.Sprintf("%x", sha256.Sum256([]byte(names))))
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := f.git("", "-C", f.bare, "ls-tree", "-r", "--name-only", "agent/t")
	if got != ".gitattributes\na\nx/y/c\nx/y/z/b" {
		t.Errorf("pushed %q", got)
	}
}
