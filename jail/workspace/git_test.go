package workspace

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const gitAs = "git -c user.name=x -c user.email=x@example.com -c safe.directory='*' -c " +
	"protocol.file.allow=always -c init.defaultBranch=main"

// repositoryFixture is a directory with a repository of one commit.
func repositoryFixture(t *testing.T) *fixture {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	f := newFixture(t)
	f.write("a", "d/x")
	f.onHost(".", "$g init -q; $g add -A; $g commit -qm one")
	return f
}

// onHost runs a script in the real directory, with $g as git.
func (f *fixture) onHost(dir, script string) string {
	f.t.Helper()
	cmd := exec.Command("sh", "-ec", "g=\""+gitAs+"\"; "+script)
	cmd.Dir = filepath.Join(f.real, dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		f.t.Fatalf("%s: %v: %s", script, err, out)
	}
	return string(out)
}

// inJail runs a script in a shadow, and freezes it.
func (f *fixture) inJail(id, script string) *Workspace {
	f.t.Helper()
	return f.shadow(id, "set -e; export HOME=/nonexistent; g=\""+gitAs+"\"; "+script)
}

// fsck has git judge a repository of the real directory.
func (f *fixture) fsck(dir string) {
	f.t.Helper()
	f.onHost(dir,
		"$g fsck --strict --no-dangling 2>&1; GIT_OPTIONAL_LOCKS=0 $g status --porcelain >/dev/null")
}

func heldPaths(held []Held) (paths []string) {
	for _, h := range held {
		paths = append(paths, string(h.Path))
	}
	return paths
}

// A commit that was made in a jail is taken whole, and what git obeys is held apart from it.
func TestGitCommitIsTaken(t *testing.T) {
	f := repositoryFixture(t)
	w := f.inJail("w",
		`echo b >b; $g add b; $g commit -qm two; $g branch hooks/config; echo x >.git/hooks/post-commit; $g config core.pager evil; mkdir -p .git/info; echo '* text' >.git/info/attributes`)
	r, err := w.Commit(t.Context(), CommitOptions{Keep: keepAll})
	must(t, err)
	if diff := cmp.Diff([]string{".git/config", ".git/hooks/post-commit", ".git/info/attributes"},
		heldPaths(r.Held)); diff != "" {
		t.Error(diff)
	}
	f.fsck(".")
	if got := f.onHost(".",
		"$g log --format=%s hooks/config; cat b; $g config core.pager || echo none"); got != "two\none\nb\nnone\n" {
		t.Errorf("the repository has %q", got)
	}
	_, err = w.Commit(t.Context(), CommitOptions{Paths: []Name{".git"}, IncludeProtected: true})
	must(t, err)
	if got := f.onHost(".", "$g config core.pager"); got != "evil\n" ||
		w.Info().State != Committed {
		t.Errorf("named, and not taken: %q, %s", got, w.Info().State)
	}
}

// A part of a repository is no choice: it is taken whole or held with one sentence, and nothing is
// broken.
func TestGitDataIsTakenTogether(t *testing.T) {
	const script = `echo b >b; echo more >>a; $g add -A; $g commit -qm two; ln -s /etc/passwd .git/refs/heads/out`
	for name, tc := range map[string]struct {
		script string
		o      CommitOptions
		held   []string
		err    error
	}{
		"files alone": {script, CommitOptions{Paths: []Name{"a", "b"}}, nil, nil},
		"refs alone": {script, CommitOptions{Paths: []Name{".git/refs/heads/main",
			".git/index", ".git/logs"}}, nil, ErrApart},
		"objects and refs": {script, CommitOptions{Paths: []Name{".git/refs/heads/main",
			".git/objects", "a"}}, []string{".git"}, nil},
		"nothing else": {script,
			CommitOptions{Paths: []Name{".git/refs/heads/main", ".git/objects"}}, nil, ErrApart},
		"a member is held": {script, CommitOptions{}, []string{".git", ".git/refs/heads/out"}, nil},
		"the policy holds it": {`$g commit --allow-empty -qm two; echo b >b`,
			CommitOptions{Protect: func(p string) (string, bool) {
				return "x",
					p == ".git/refs/heads/main"
			}}, []string{".git", ".git/refs/heads/main"}, nil},
		"removals alone": {`$g gc -q --prune=now; rm -f .git/info/refs`,
			CommitOptions{Paths: []Name{".git/objects"}}, nil, ErrApart},
	} {
		t.Run(name, func(t *testing.T) {
			f := repositoryFixture(t)
			before := f.onHost(".", "$g rev-parse HEAD")
			w := f.inJail("w", tc.script)
			r, err := w.Commit(t.Context(), tc.o)
			if !errors.Is(err, tc.err) {
				t.Fatalf("got %v, want %v", err, tc.err)
			}
			if diff := cmp.Diff(tc.held, heldPaths(r.Held)); err == nil && diff != "" {
				t.Error(diff, r.Held)
			}
			f.fsck(".")
			if got := f.onHost(".", "$g rev-parse HEAD"); got != before {
				t.Errorf("HEAD moved to %s", got)
			}
		})
	}
}

// T-340: a repository that was not there is held whole, by whatever name and in whatever steps it
// comes.
func TestNewRepositoriesAreHeldWhole(t *testing.T) {
	f := repositoryFixture(t)
	f.write("half/objects/x", "half/refs/x", "pointer/commondir")
	w := f.inJail("w", `$g init -q sub; (cd sub; echo x >x; $g add x; $g commit -qm x); $g init -q --bare bare
		echo 'ref: refs/heads/main' >half/HEAD; printf '[remote "x"]\n' >half/config; echo 'ref: x' >pointer/HEAD; echo y >half/readme
		$g worktree add -q tree; mkdir b; echo x >b/HEAD; mkdir b/objects; mkdir b/refs; echo x >b/refs/r; echo x >b/other`)
	r, err := w.Commit(t.Context(), CommitOptions{})
	must(t, err)
	want := []string{".git/worktrees/tree", "b", "bare", "half", "pointer", "sub/.git", "tree/.git"}
	if diff := cmp.Diff(want, heldPaths(r.Held)); diff != "" {
		t.Error(diff, r.Held)
	}
	for _, path := range []string{"b", "bare", "half/HEAD", "half/config", "pointer/HEAD",
		"sub/.git", ".git/worktrees/tree", "tree/.git"} {
		if _, err := os.Lstat(filepath.Join(f.real, path)); err == nil {
			t.Errorf("%s was taken", path)
		}
	}
	for _, path := range []string{"sub/x", "half/readme", "tree/a", ".git/refs/heads/tree"} {
		if _, err := os.Lstat(filepath.Join(f.real, path)); err != nil {
			t.Errorf("%s was not taken: %v", path, err)
		}
	}
	f.fsck(".")
	if _, err := w.Commit(t.Context(), CommitOptions{Paths: []Name{"sub/.git/HEAD",
		"sub/.git/objects", "sub/.git/config"}, IncludeProtected: true}); !errors.Is(err,
		ErrProtected) {
		t.Errorf("a part of a new repository: %v", err)
	}
	_, err = w.Commit(t.Context(), CommitOptions{Paths: []Name{"sub/.git", "bare",
		".git/worktrees/tree"}, IncludeProtected: true})
	must(t, err)
	f.fsck("sub")
	f.fsck(".")
}

// Nested repositories and those of submodules are groups of their own.
func TestNestedRepositories(t *testing.T) {
	f := repositoryFixture(t)
	f.onHost(".", `mkdir ../lib; cd ../lib; $g init -q; echo l >l; $g add l; $g commit -qm l`)
	f.onHost(".",
		`$g submodule --quiet add ../lib vendor/lib; $g commit -qm sub; mkdir nest; cd nest; $g init -q; echo n >n; $g add n; $g commit -qm n`)
	f.onHost(".", `test -d .git/modules/vendor/lib/objects`)
	w := f.inJail("w",
		`(cd vendor/lib; $g commit -q --allow-empty -m l2; echo x >../../.git/modules/vendor/lib/hooks/post-checkout); (cd nest; $g commit -q --allow-empty -m n2); $g add vendor/lib; $g commit -qm s2`)
	r, err := w.Commit(t.Context(),
		CommitOptions{Paths: []Name{".git/modules", "nest/.git/objects"}, Keep: keepAll})
	must(t, err)
	if diff := cmp.Diff([]string{".git/modules/vendor/lib/hooks/post-checkout", "nest/.git"},
		heldPaths(r.Held)); diff != "" {
		t.Error(diff, r.Held)
	}
	all := func(want string) {
		t.Helper()
		for _, dir := range []string{".", "vendor/lib", "nest"} {
			f.fsck(dir)
		}
		if got := f.onHost(".",
			`for d in . vendor/lib nest; do (cd $d; $g log -1 --format=%s); done`); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	all("sub\nl2\nn\n")
	_, err = w.Commit(t.Context(), CommitOptions{Keep: keepAll})
	must(t, err)
	all("s2\nl2\nn2\n")
	_, err = w.Revert(t.Context(), RevertOptions{})
	must(t, err)
	all("sub\nl2\nn\n")
	_, err = w.Revert(t.Context(), RevertOptions{})
	must(t, err)
	all("sub\nl\nn\n")
}

// A repository that borrows objects is one group with those it may borrow from.
func TestBorrowedObjects(t *testing.T) {
	f := repositoryFixture(t)
	f.onHost(".",
		`$g clone -q --shared . ../c; mv ../c c; echo ../../../.git/objects >c/.git/objects/info/alternates; cd c; $g fsck`)
	w := f.inJail("w",
		`$g commit -q --allow-empty -m two; cd c; $g config remote.origin.url ..; $g pull -q; $g log -1 --format=%s | grep -q two; test $(find .git/objects -type f | wc -l) = 1`)
	if _, err := w.Commit(t.Context(), CommitOptions{Paths: []Name{"c"}}); err == nil ||
		!strings.Contains(err.Error(), "taken together") {
		t.Errorf("the borrower alone: %v", err)
	}
	_, err := w.Commit(t.Context(), CommitOptions{})
	must(t, err)
	f.fsck(".")
	f.fsck("c")
}

// What git does outside is not run over: a lock there is a conflict, one that a git in the jail
// left is not taken.
func TestGitLocks(t *testing.T) {
	for _, lock := range []string{".git/index.lock", ".git/refs/heads/topic/x.lock",
		".git/packed-refs.lock", ".git/worktrees/w/HEAD.lock",
		".git/objects/info/commit-graph.lock"} {
		f := repositoryFixture(t)
		w := f.inJail("w", `$g commit -q --allow-empty -m two; echo b >b; : >.git/HEAD.lock`)
		f.write(lock)
		before := snapshotText(f.real)
		var conflict *ConflictError
		if _, err := w.Commit(t.Context(), CommitOptions{Keep: keepAll}); !errors.As(err,
			&conflict) || len(conflict.Conflicts) != 1 ||
			string(conflict.Conflicts[0].Path) != lock {
			t.Errorf("%s: %v", lock, err)
		}
		if diff := cmp.Diff(before, snapshotText(f.real)); diff != "" {
			t.Error(diff)
		}
		_, err := w.Commit(t.Context(), CommitOptions{Paths: []Name{"b"}})
		must(t, err)
		must(t, os.Remove(filepath.Join(f.real, lock)))
		r, err := w.Commit(t.Context(), CommitOptions{Keep: keepAll})
		must(t, err)
		if diff := cmp.Diff([]string{".git/HEAD.lock"}, heldPaths(r.Held)); diff != "" {
			t.Error(diff)
		}
		f.fsck(".")
		f.write(lock)
		if _, err := w.Revert(t.Context(), RevertOptions{}); !errors.Is(err, ErrConflict) {
			t.Errorf("revert beside %s: %v", lock, err)
		}
	}
	f := repositoryFixture(t)
	f.write(".git/index.lock")
	w := f.inJail("w", `rm .git/index.lock; $g commit -q --allow-empty -m two`)
	_, err := w.Commit(t.Context(), CommitOptions{})
	must(t, err)
}

// Objects that are removed, in the shadow or by a revert, are none that something outside has come
// to name.
func TestObjectsInUseStay(t *testing.T) {
	f := repositoryFixture(t)
	f.onHost(".",
		`$g commit -q --allow-empty -m lost; $g update-ref refs/keep/lost HEAD; $g reset -q --hard HEAD^; $g update-ref -d refs/keep/lost; $g reflog expire --expire=now --all`)
	settle(t)
	w := f.inJail("prune", `$g gc -q --prune=now`)
	f.onHost(".",
		`$g branch found $($g fsck --lost-found 2>/dev/null | sed -n 's/dangling commit //p')`)
	if _, err := w.Commit(t.Context(), CommitOptions{}); !errors.Is(err, ErrConflict) ||
		!strings.Contains(err.Error(), "refs/heads/found") {
		t.Errorf("the removal of an object that is in use: %v", err)
	}
	f.fsck(".")

	w = f.inJail("w", `echo b >b; $g add b; $g commit -qm two`)
	_, err := w.Commit(t.Context(), CommitOptions{Keep: keepAll})
	must(t, err)
	settle(t)
	f.onHost(".", `$g branch kept`)
	_, err = w.Revert(t.Context(), RevertOptions{})
	must(t, err)
	f.fsck(".")
	if got := f.onHost(".",
		`$g log -1 --format=%s; $g log -1 --format=%s kept; $g status --porcelain`); got != "one\ntwo\n" {
		t.Errorf("after the revert: %q", got)
	}
}

// While a commit is carried out, a program that reads the repository finds each object that a
// reference names.
func TestGitOrder(t *testing.T) {
	f := repositoryFixture(t)
	w := f.inJail("w",
		`echo b >b; $g add b; $g commit -qm two; $g gc -q --prune=now; $g commit -q --allow-empty -m three; $g branch topic`)
	var failed []string
	f.store.fault = func(at string) error {
		if strings.HasPrefix(at, "apply") {
			if out, err := exec.Command("sh", "-c", "cd "+f.real+" && "+gitAs+
				" fsck --strict --no-dangling 2>&1").CombinedOutput(); err != nil {
				failed = append(failed, at+": "+string(out))
			}
		}
		return nil
	}
	_, err := w.Commit(t.Context(), CommitOptions{Keep: keepAll})
	must(t, err)
	_, err = w.Revert(t.Context(), RevertOptions{})
	must(t, err)
	for _, line := range slices.Compact(failed) {
		t.Error(line)
	}
}

// A repository of which the disk lost an object is not taken.
func TestDamagedRepositoryIsHeld(t *testing.T) {
	f := repositoryFixture(t)
	w := f.inJail("w", `echo b >b; $g add b; $g commit -qm two`)
	for _, c := range changesOf(t, w) {
		if c.isObject() && c.After.Type == File {
			w.layer.damaged = map[string]bool{string(c.Path): true}
		}
	}
	r, err := w.Commit(t.Context(), CommitOptions{})
	must(t, err)
	if len(r.Held) != 1 || r.Held[0].Path != ".git" || !strings.Contains(r.Held[0].Why,
		"is damaged") {
		t.Errorf("held %v", r.Held)
	}
	f.fsck(".")
}
