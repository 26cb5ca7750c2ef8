package workspace

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A liveTool is a shell on a shadow that stays mounted. Between two scripts it waits for its input,
// so that nothing writes to the shadow.
type liveTool struct {
	f   *fixture
	w   *Workspace
	in  io.WriteCloser
	out *bufio.Reader
	cmd *exec.Cmd
}

// live prepares a workspace and starts a shell on it.
func (f *fixture) live(id string) *liveTool {
	f.t.Helper()
	return f.liveOn(f.prepare(id))
}

// liveOn starts a shell on a workspace.
func (f *fixture) liveOn(w *Workspace) *liveTool {
	f.t.Helper()
	lower, err := w.Lower()
	must(f.t, err)
	defer lower.Close()
	upper, err := w.Upper()
	must(f.t, err)
	defer upper.Close()
	l := &liveTool{f: f, w: w}
	text, err := json.Marshal(order{Target: f.target, Shell: true})
	must(f.t, err)
	l.cmd = exec.Command("/proc/self/exe")
	l.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	l.cmd.Stderr = os.Stderr
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	l.cmd.ExtraFiles = []*os.File{lower, upper}
	l.in, err = l.cmd.StdinPipe()
	must(f.t, err)
	out, err := l.cmd.StdoutPipe()
	must(f.t, err)
	l.out = bufio.NewReader(out)
	must(f.t, l.cmd.Start())
	f.t.Cleanup(l.end)
	return l
}

// do runs a script and returns what it said.
func (l *liveTool) do(script string) string {
	l.f.t.Helper()
	const end = "=== the end of the script"
	_, err := fmt.Fprintf(l.in, "%s\necho '%s'\n", script, end)
	must(l.f.t, err)
	said := ""
	for {
		line, err := l.out.ReadString('\n')
		if err != nil {
			l.f.t.Fatalf("the tool has ended: %v: %s%s", err, said, line)
		}
		if strings.TrimSpace(line) == end {
			return said
		}
		said += line
	}
}

// end ends the shell, and with it the mount.
func (l *liveTool) end() {
	l.in.Close()
	io.Copy(io.Discard, l.out)
	l.cmd.Wait()
}

// diff lists the changes, each with its conflict.
func (l *liveTool) diff() []string {
	l.f.t.Helper()
	out := []string{}
	_, err := l.w.Show(l.f.t.Context(), ShowOptions{Live: true}, func(c Change) error {
		line := fmt.Sprintf("%s %s", c.Kind, c.Path)
		if c.Conflict != "" {
			line += ": " + c.Conflict
		}
		out = append(out, line)
		return nil
	})
	must(l.f.t, err)
	return out
}

func (l *liveTool) wants(want ...string) {
	l.f.t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), l.diff()); diff != "" {
		l.f.t.Errorf("changes (-want +got):\n%s", diff)
	}
}

func (l *liveTool) commit(o CommitOptions) error {
	l.f.t.Helper()
	o.Live = true
	r, err := l.w.Commit(l.f.t.Context(), o)
	if err == nil && r.State != Active {
		l.f.t.Errorf("after a commit the workspace is %s", r.State)
	}
	return err
}

// commitAll commits every change, after which none is left.
func (l *liveTool) commitAll() {
	l.f.t.Helper()
	must(l.f.t, l.commit(CommitOptions{}))
	l.wants()
}

// sees checks what a script says to the tool.
func (l *liveTool) sees(script, want string) {
	l.f.t.Helper()
	if said := l.do(script); said != want {
		l.f.t.Errorf("the tool sees %q, want %q", said, want)
	}
}

// holds checks a file of the real directory; "" means that there is none.
func (f *fixture) holds(path, want string) {
	f.t.Helper()
	got, err := os.ReadFile(filepath.Join(f.real, path))
	if want == "" && errors.Is(err, os.ErrNotExist) {
		return
	}
	if err != nil || string(got) != want {
		f.t.Errorf("%s: %q, %v, want %q", path, got, err, want)
	}
}

func (f *fixture) edit(path, text string) {
	f.t.Helper()
	full := filepath.Join(f.real, path)
	must(f.t, os.MkdirAll(filepath.Dir(full), 0o755))
	must(f.t, os.WriteFile(full, []byte(text), 0o644))
}

// Two commits of a shadow that a tool goes on to use.
func TestLiveCommit(t *testing.T) {
	f := newFixture(t)
	f.write("mod", "gone", "mode", "tree/a", "tree/sub/b", "move/x", "same", "theirs")
	l := f.live("w")
	l.wants()
	l.do("echo 1 >mod; rm gone; chmod 755 mode; rm -r tree; echo n >new; mkdir dir; " +
		"echo i >dir/in; mv move moved; ln -s mod link; echo s >same; echo t >theirs")
	first := []string{"added dir", "added dir/in", "deleted gone", "added link", "modified mod",
		"mode mode", "deleted move", "deleted move/x", "added moved", "added moved/x", "added new",
		"modified same", "modified theirs", "deleted tree", "deleted tree/a", "deleted tree/sub",
		"deleted tree/sub/b"}
	l.wants(first...)
	if _, err := l.w.Commit(t.Context(), CommitOptions{}); !errors.Is(err, ErrActive) {
		t.Errorf("a commit while the tool may write: %v", err)
	}
	l.commitAll()
	f.holds("mod", "1\n")
	f.holds("moved/x", "move/x\n")
	f.holds("gone", "")
	f.holds("tree/a", "")

	// The tool sees its own files as before, and its second changes are clean ones.
	l.sees("cat mod new dir/in moved/x link; ls -d gone tree move 2>&1 | wc -l",
		"1\nn\ni\nmove/x\n1\n3\n")
	l.do("echo 2 >mod; echo more >>new; echo back >gone; rm dir/in; echo y >dir/y; " +
		"mv moved again; rm link; rm same; echo s >same; mkdir tree; echo c >tree/c; " +
		"chmod 700 mode")
	l.wants("added again", "added again/x", "deleted dir/in", "added dir/y", "added gone",
		"deleted link", "modified mod", "mode mode", "deleted moved", "deleted moved/x",
		"modified new", "added tree", "added tree/c")
	l.commitAll()
	f.holds("mod", "2\n")
	f.holds("dir/in", "")
	f.holds("again/x", "move/x\n")
	f.holds("gone", "back\n")

	// The end of the tool changes nothing of it.
	l.do("echo 3 >mod; rm dir/y")
	l.wants("deleted dir/y", "modified mod")
	l.end()
	must(t, l.w.Freeze())
	must(t, l.w.Keep())
	if got := brief(changesOf(t, l.w)); !cmp.Equal(got, []string{"deleted dir/y", "modified mod"}) {
		t.Errorf("after the end: %q", got)
	}
	_, err := l.w.Commit(t.Context(), CommitOptions{})
	must(t, err)
	f.holds("mod", "3\n")
	f.holds("dir/y", "")
}

// What a person changes in the real directory between two commits is a conflict by name where the
// tool changed it, too, and is left alone where the tool did not.
func TestLiveConflict(t *testing.T) {
	f := newFixture(t)
	f.write("both", "person", "stale", "gone", "removed")
	l := f.live("w")
	l.do("echo 1 >both; echo 1 >stale; rm gone; echo 1 >removed; mkdir dir; echo 1 >dir/f; " +
		"echo 1 >new")
	l.commitAll()

	f.edit("both", "person\n")
	f.edit("person", "person\n")
	f.edit("stale", "person\n")
	f.edit("gone", "person\n")
	f.edit("dir/f", "person\n")
	f.edit("new", "2\n")
	must(t, os.Remove(filepath.Join(f.real, "removed")))
	// Of these the tool has changed none since.
	l.wants()
	must(t, l.commit(CommitOptions{}))
	f.holds("stale", "person\n")
	f.holds("gone", "person\n")

	l.do("echo 2 >both; echo 2 >gone; echo 2 >removed; rm dir/f; echo 2 >new")
	l.wants("modified both: the real file was changed since the last commit",
		"deleted dir/f: the real file was changed since the last commit",
		"modified gone: the real file was made since the last commit",
		"added removed: the real file was deleted or moved since the last commit")
	err := l.commit(CommitOptions{})
	conflict := (*ConflictError)(nil)
	if !errors.As(err, &conflict) || len(conflict.Conflicts) != 4 {
		t.Fatalf("commit: %v", err)
	}
	f.holds("both", "person\n")
	f.holds("dir/f", "person\n")
	f.holds("removed", "")
	must(t, l.commit(CommitOptions{Theirs: true}))
	l.wants()
	f.holds("both", "2\n")
	f.holds("removed", "2\n")

	// The same bytes are no change of theirs, whatever the file's times say.
	f.edit("both", "2\n")
	must(t, os.Chtimes(filepath.Join(f.real, "both"), time.Unix(1, 0), time.Unix(1, 0)))
	l.do("echo 3 >both")
	l.wants("modified both")

	// A directory that the tool made and somebody removed is a conflict with all that it has.
	must(t, l.commit(CommitOptions{}))
	must(t, os.RemoveAll(filepath.Join(f.real, "dir")))
	l.do("echo 3 >dir/g")
	l.wants("added dir: the real dir was deleted or moved since the last commit",
		"added dir/g")
}

// A revert of a live workspace puts the real directory back, and what was committed is a change
// again.
func TestLiveRevert(t *testing.T) {
	f := newFixture(t)
	f.write("mod", "gone", "kept")
	l := f.live("w")
	l.do("echo 1 >mod; rm gone; mkdir dir; echo 1 >dir/f")
	must(t, l.commit(CommitOptions{Keep: keepAll}))
	l.do("echo 2 >mod; rm dir/f")
	must(t, l.commit(CommitOptions{Keep: keepAll}))
	l.wants()
	revert := func() {
		t.Helper()
		r, err := l.w.Revert(t.Context(), RevertOptions{Live: true})
		if err != nil || r.State != Active {
			t.Fatalf("revert: %+v, %v", r, err)
		}
	}
	if _, err := l.w.Revert(t.Context(), RevertOptions{}); !errors.Is(err, ErrActive) {
		t.Errorf("a revert while the tool may write: %v", err)
	}
	revert()
	f.holds("mod", "1\n")
	f.holds("dir/f", "1\n")
	l.wants("deleted dir/f", "modified mod")
	revert()
	f.holds("mod", "mod\n")
	f.holds("gone", "gone\n")
	f.holds("dir/f", "")
	l.wants("added dir", "deleted gone", "modified mod")
	l.sees("cat mod; ls", "2\ndir\nkept\nmod\n")
	l.commitAll()
	f.holds("mod", "2\n")

	// What was committed can be reverted when the tool has ended, too.
	l.end()
	must(t, l.w.Freeze())
	must(t, l.w.Keep())
	_, err := l.w.Commit(t.Context(), CommitOptions{})
	must(t, err)
}

// A commit of chosen hunks leaves the others, and a merge of both sides is no change of the tool's
// until the tool writes again.
func TestLivePart(t *testing.T) {
	f := newFixture(t)
	lines := strings.Split("abcdefghijklmnopqrst", "")
	text := func() string { return strings.Join(lines, "\n") + "\n" }
	f.edit("hunks", text())
	f.edit("other", "x\n")
	l := f.live("w")
	l.do("sed -i '1s/.*/first/; 20s/.*/last/' hunks; echo y >other")
	shown, err := l.w.Show(t.Context(), ShowOptions{Live: true}, func(Change) error { return nil })
	must(t, err)
	must(t, l.commit(CommitOptions{Digest: shown.Digest, Hunks: map[Name][]int{"hunks": {0}}}))
	lines[0] = "first"
	f.holds("hunks", text())
	l.wants("modified hunks", "modified other")
	must(t, l.commit(CommitOptions{Paths: []Name{"other"}}))
	l.wants("modified hunks")
	l.commitAll()
	lines[19] = "last"
	f.holds("hunks", text())
}

// Whatever step of a commit of a live workspace fails, the real directory is as it was, and the
// workspace is live; where the process dies, Recover sees to that.
func TestLiveFault(t *testing.T) {
	f := newFixture(t)
	for i := 0; ; i++ {
		name := fmt.Sprintf("w%d", i)
		f.edit("mod", "0\n")
		f.edit("gone", "0\n")
		os.Remove(filepath.Join(f.real, "new"))
		l := f.live(name)
		l.do("echo 1 >mod; rm gone; echo 1 >new")
		want := l.diff()
		reached, stopped := 0, errors.New("stopped")
		f.store.fault = func(at string) error {
			if reached++; reached > i && !strings.HasPrefix(at, "undo") {
				return fmt.Errorf("%w at %s", stopped, at)
			}
			return nil
		}
		r, err := l.w.Commit(t.Context(), CommitOptions{Live: true, Keep: keepAll})
		f.store.fault = nil
		if r.State == Committing || l.w.Info().State == Committing {
			// The commit stands, and what it put aside is still to be removed.
			_, recoverErr := f.store.Recover(t.Context())
			must(t, recoverErr)
			l.w.mu.Lock()
			must(t, l.w.load())
			l.w.mu.Unlock()
			err = nil
		}
		if state := l.w.Info().State; state != Active {
			t.Fatalf("fault %d: the workspace is %s", i, state)
		}
		if err != nil {
			l.wants(want...)
			f.holds("mod", "0\n")
			f.holds("gone", "0\n")
			f.holds("new", "")
		} else {
			l.wants()
			f.holds("mod", "1\n")
			f.holds("gone", "")
			f.holds("new", "1\n")
		}
		l.do("echo 2 >mod")
		if err == nil {
			l.wants("modified mod")
		}
		l.end()
		must(t, l.w.Freeze())
		must(t, l.w.Discard())
		for _, e := range namesOf(t, f.real) {
			if strings.HasPrefix(e, ".jail-") {
				t.Errorf("fault %d leaves %s", i, e)
			}
		}
		if reached <= i {
			if i < 8 {
				t.Errorf("only %d steps were reached", i)
			}
			return
		}
	}
}

func namesOf(t testing.TB, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// A commit with nothing to take leaves no record that a revert would find, and the last of a
// workspace that was committed while it lived ends it.
func TestLiveNothingLeft(t *testing.T) {
	f := newFixture(t)
	f.write("mod")
	l := f.live("w")
	l.do("echo 1 >mod")
	must(t, l.commit(CommitOptions{Keep: keepAll}))
	must(t, l.commit(CommitOptions{Keep: keepAll}))
	if n := len(l.w.Info().Commits); n != 1 {
		t.Errorf("%d commits", n)
	}
	l.end()
	must(t, l.w.Freeze())
	must(t, l.w.Keep())
	must(t, l.w.Conclude())
	r, err := l.w.Revert(t.Context(), RevertOptions{})
	if err != nil || r.State != ChangedBack {
		t.Errorf("revert: %+v, %v", r, err)
	}
	f.holds("mod", "mod\n")
}

// What is discarded in a live workspace is no change until the tool changes it again, also after
// the end of the tool.
func TestLiveDiscard(t *testing.T) {
	f := newFixture(t)
	f.write("mod", "gone", "tree/a", "tree/b", "both")
	l := f.live("w")
	l.do("echo 1 >mod; rm gone; rm -r tree; mkdir -p dir/sub; echo 1 >dir/f; echo 1 >dir/sub/g;" +
		"echo 1 >both; echo 1 >kept")
	discard := func(paths ...Name) (gone, left Summary) {
		t.Helper()
		gone, left, err := l.w.DiscardPaths(t.Context(), paths, true,
			func(_, _ Summary) error { return nil })
		must(t, err)
		return gone, left
	}
	if _, _, err := l.w.DiscardPaths(t.Context(), []Name{"mod"}, false, nil); !errors.Is(err,
		ErrActive) {
		t.Errorf("a discard while the tool may write: %v", err)
	}
	gone, left := discard("mod", "gone", "tree/a", "dir", "both")
	l.wants("added kept", "deleted tree/b")
	if gone.Total() != 9 || left.Total() != 2 {
		t.Errorf("discarded %+v, left %+v", gone, left)
	}
	l.sees("cat mod dir/f dir/sub/g; ls -d gone tree 2>/dev/null", "1\n1\n1\n")
	l.commitAll()
	f.holds("mod", "mod\n")
	f.holds("tree/a", "tree/a\n")
	f.holds("tree/b", "")
	f.holds("dir/f", "")

	// A new file needs its directories, and nothing else of what was discarded.
	f.edit("both", "person\n")
	l.do("echo 2 >dir/sub/new; echo 2 >mod; echo 2 >both")
	l.wants("modified both: the real file was changed since the run began", "added dir",
		"added dir/sub", "added dir/sub/new", "modified mod")
	must(t, l.commit(CommitOptions{Paths: []Name{"dir", "mod"}}))
	f.holds("mod", "2\n")
	f.holds("dir/sub/new", "2\n")
	f.holds("dir/f", "")
	discard("both")
	l.wants()
	l.end()
	must(t, l.w.Freeze())
	must(t, l.w.Keep())
	if got := brief(changesOf(t, l.w)); len(got) != 0 {
		t.Errorf("after the end: %q", got)
	}
	f.holds("both", "person\n")
}

// A commit without a person takes what is plain, and leaves the rest with reasons: what is
// protected, risky or in conflict, and the data of a repository in which a git of the host is at
// work. Nothing to take is no error, and begins nothing.
func TestLiveAuto(t *testing.T) {
	f := newFixture(t)
	f.write("mod", "both", "dir/in")
	l := f.live("w")
	begun := 0
	auto := func(want ...string) Result {
		t.Helper()
		r, err := l.w.Commit(t.Context(), CommitOptions{Live: true, Auto: true, Keep: keepAll,
			Begin: func() error { begun++; return nil }})
		must(t, err)
		if diff := cmp.Diff(want, heldPaths(r.Held)); diff != "" {
			t.Errorf("left: %s", diff)
		}
		return r
	}
	if r := auto(); r.ID != "" || begun != 0 {
		t.Errorf("a commit of nothing: %+v", r)
	}
	f.edit("both", "person\n")
	l.do("echo 1 >mod; echo 1 >both; echo x >package.json; mkdir -p .git/hooks; " +
		"echo x >.git/hooks/post-commit; ln -s /etc/passwd out; echo '#!/bin/sh' >run; " +
		"chmod 755 run; mkdir new; echo 1 >new/f; rm -r dir; mkfifo pipe")
	r := auto(".git", ".git/hooks", ".git/hooks/post-commit", "both", "out", "package.json", "pipe",
		"run")
	if r.ID == "" || begun != 1 || len(r.Committed) != 5 {
		t.Errorf("committed %q, begun %d", brief(r.Committed), begun)
	}
	f.holds("mod", "1\n")
	f.holds("new/f", "1\n")
	f.holds("dir/in", "")
	f.holds("both", "person\n")
	f.holds("package.json", "")
	f.holds("run", "")
	if r := auto(".git", ".git/hooks", ".git/hooks/post-commit", "both", "out", "package.json",
		"pipe", "run"); r.ID != "" || begun != 1 {
		t.Errorf("a second commit: %+v", r)
	}
	refused := errors.New("refused")
	l.do("echo 2 >mod")
	if _, err := l.w.Commit(t.Context(), CommitOptions{Live: true, Auto: true,
		Begin: func() error { return refused }}); !errors.Is(err, refused) {
		t.Errorf("a commit whose beginning is refused: %v", err)
	}
	f.holds("mod", "1\n")
}
