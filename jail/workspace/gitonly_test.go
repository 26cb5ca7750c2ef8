package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jail-sandbox/jail/jail/gitrepo"
)

// gitOnly commits a branch alone.
func gitOnly(t *testing.T, w *Workspace, ref string, paths ...Name) (Result, error) {
	t.Helper()
	want, err := gitrepo.ParseWant(ref)
	must(t, err)
	return w.Commit(t.Context(), CommitOptions{GitOnly: &want, Git: readerHere{}, Paths: paths,
		Keep: keepAll})
}

// work is a branch of two commits, beside everything else that a run can do to a repository.
const work = `$g checkout -qb work; echo b >b; mkdir -p s/t; echo c >s/t/c; $g add .
	$g commit -qm two; echo d >>b; $g commit -qam three; $g tag -am note v1
	echo x >.git/hooks/post-merge; $g config core.pager evil
	$g branch other; echo loose >untracked; `

// A branch is taken as git fetch would: its objects and its ref, of loose objects and of packs, and
// nothing else. The real repository is sound, and a revert takes it back.
func TestGitOnly(t *testing.T) {
	for name, tc := range map[string]struct {
		before, script, ref, want string
	}{
		"loose":        {"", work, "work", "one\nthree\ntwo\n"},
		"packed":       {"", work + "$g gc -q --prune=now", "work", "one\nthree\ntwo\n"},
		"another name": {"", work, "work:agent/work", "one\nthree\ntwo\n"},
		"a whole name": {"", work, "refs/heads/work:refs/heads/x/y/z", "one\nthree\ntwo\n"},
		"of packed refs": {"$g branch other; $g pack-refs --all",
			"$g checkout -q other; echo n >n; $g add n; $g commit -qm n",
			"other", "n\none\n"},
		"of a packed repository": {"$g gc -q; $g branch other",
			"$g checkout -q other; echo n >n; $g add n; $g commit -qm n",
			"other", "n\none\n"},
		"a tag": {"", work, "v1", "one\nthree\ntwo\n"},
		"a merge": {"", work + "$g checkout -q main; echo m >m; $g add m; $g commit -qm m; " +
			"$g merge -qm merged work; $g branch done", "done", "m\nmerged\none\nthree\ntwo\n"},
		"an empty tree": {"",
			"$g checkout -q --orphan e; $g rm -qrf .; $g commit -q --allow-empty -m e", "e", "e\n"},
		"rewritten, as asked": {"$g checkout -qb other; echo 1 >o; $g add o; " +
			"$g commit -qm first; $g checkout -q main",
			"$g checkout -q other; $g commit -q --amend -m second", "+other", "one\nsecond\n"},
	} {
		t.Run(name, func(t *testing.T) {
			f := repositoryFixture(t)
			f.onHost(".", tc.before)
			old := snapshotText(f.real)
			const rest = "cksum .git/HEAD .git/index .git/config $(find .git/logs -type f | sort)"
			before := f.onHost(".", rest)
			w := f.inJail("w", tc.script)
			r, err := gitOnly(t, w, tc.ref)
			must(t, err)
			from, into, ok := strings.Cut(strings.TrimPrefix(tc.ref, "+"), ":")
			if !ok {
				into = from
			}
			f.onHost(".", "$g fsck --strict --no-dangling 2>&1")
			if got := f.onHost(".", "$g log --format=%s "+into+" | sort"); got != tc.want {
				t.Errorf("the history is %q, not %q", got, tc.want)
			}
			if diff := cmp.Diff(before, f.onHost(".", rest)); diff != "" {
				t.Error(diff)
			}
			for _, path := range []string{".git/hooks/post-merge", "untracked", "b"} {
				if _, err := os.Lstat(filepath.Join(f.real, path)); err == nil {
					t.Errorf("%s was taken", path)
				}
			}
			if got := f.onHost(".", "$g config core.pager || echo none"); got != "none\n" {
				t.Errorf("the pager is %s", got)
			}
			for _, c := range r.Committed {
				rest := strings.TrimPrefix(string(c.Path), ".git/")
				if !strings.HasPrefix(rest, "objects/") && !strings.HasPrefix(rest, "refs/") {
					t.Errorf("%s was committed", c.Path)
				}
			}
			if r.Git == "" || w.Info().State != Frozen {
				t.Errorf("%q, %s", r.Git, w.Info().State)
			}
			if name == "loose" {
				// What was taken is no change any more.
				for _, c := range changesOf(t, w) {
					if strings.Contains(string(c.Path), "refs/heads/work") && c.Git == GitRefs {
						t.Errorf("%s is left", c.Path)
					}
				}
			}
			_, err = w.Revert(t.Context(), RevertOptions{})
			must(t, err)
			if diff := cmp.Diff(old, snapshotText(f.real)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The control of the crafted objects: git itself finds fault with each.
func TestCraftedObjectsAreFaults(t *testing.T) {
	f := repositoryFixture(t)
	w := f.inJail("w", `printf '[submodule "../../x"]\n\tpath = a\n\turl = -u./evil\n' >m
		h=$($g hash-object -w m)
		tree=$(printf "100644 blob $h\t.gitmodules\n" | $g mktree)
		$g update-ref refs/heads/evil $($g commit-tree -m evil $tree)`)
	_, err := gitOnly(t, w, "evil")
	if !errors.Is(err, ErrGitOnly) {
		t.Errorf("got %v", err)
	}
	_, err = w.Commit(t.Context(), CommitOptions{})
	must(t, err)
	if got := f.onHost(".", "$g fsck --strict 2>&1 || true"); !strings.Contains(got, "gitmodules") {
		t.Errorf("git says %s", got)
	}
}

// A forced branch is taken only while the ref has the value that was reviewed, and Branch, which
// says the value, writes nothing.
func TestGitOnlyIsBoundToTheRef(t *testing.T) {
	f := repositoryFixture(t)
	f.onHost(".", "$g branch other")
	before := strings.TrimSpace(f.onHost(".", "$g rev-parse other"))
	w := f.inJail("w", "$g checkout -q other; $g commit -q --amend -m second")
	want, err := gitrepo.ParseWant("+other")
	must(t, err)
	old := snapshotText(f.real)
	o := CommitOptions{GitOnly: &want, Git: readerHere{}}
	ref, err := Branch(t.Context(), w, o)
	must(t, err)
	if ref.Ref != "refs/heads/other" || ref.Before != before || ref.After == before {
		t.Errorf("%+v", ref)
	}
	if diff := cmp.Diff(old, snapshotText(f.real)); diff != "" {
		t.Error(diff)
	}
	o.Branch = &ref
	f.onHost(".", "$g update-ref refs/heads/other $($g commit-tree -m mine HEAD^{tree})")
	if _, err := w.Commit(t.Context(), o); !errors.Is(err, ErrDigest) {
		t.Errorf("a ref that moved: %v", err)
	}
	f.onHost(".", "$g update-ref refs/heads/other "+before)
	if _, err := w.Commit(t.Context(), o); err != nil {
		t.Error(err)
	}
	if got := strings.TrimSpace(f.onHost(".", "$g rev-parse other")); got != ref.After {
		t.Errorf("other is %s, want %s", got, ref.After)
	}
}

// A git at work outside, and a ref that moved meanwhile, are conflicts; several repositories need a
// name; a bare repository has no branch that is checked out.
func TestGitOnlyBeside(t *testing.T) {
	f := repositoryFixture(t)
	f.onHost(".", "$g init -q lib; cd lib; echo x >x; $g add x; $g commit -qm lib; cd ..; "+
		"$g clone -q --bare lib bare.git")
	w := f.inJail("w", `echo b >b; $g add b; $g commit -qm two; $g branch mine
		cd lib; $g commit -q --allow-empty -m lib2; $g branch mine; cd ../bare.git
		$g update-ref refs/heads/main $($g commit-tree -p main -m bare2 main^{tree})`)
	if _, err := gitOnly(t, w, "mine"); !errors.Is(err, ErrGitOnly) ||
		!strings.Contains(err.Error(), "repositories changed") {
		t.Errorf("without a name: %v", err)
	}
	f.onHost(".", ": >lib/.git/index.lock")
	if _, err := gitOnly(t, w, "mine", "lib"); !errors.Is(err, ErrConflict) {
		t.Errorf("beside a lock: %v", err)
	}
	f.onHost(".", "rm lib/.git/index.lock")
	for _, of := range []struct {
		path Name
		ref  string
	}{{"lib", "mine"}, {".git", "mine"}, {"bare.git", "main"}} {
		_, err := gitOnly(t, w, of.ref, of.path)
		must(t, err)
	}
	f.onHost(".", "$g fsck --strict 2>&1; cd lib; $g fsck --strict 2>&1; cd ../bare.git; "+
		"$g fsck --strict 2>&1")
	if got := f.onHost(".", "$g log -1 --format=%s mine; cd lib; $g log -1 --format=%s mine; "+
		"cd ../bare.git; $g log -1 --format=%s main"); got != "two\nlib2\nbare2\n" {
		t.Errorf("the histories are %q", got)
	}
}

// What git fetch refuses is refused with a sentence, and nothing is written.
func TestGitOnlyRefused(t *testing.T) {
	const made = `o() { $g hash-object -t "$1" -w --stdin --literally; }
		c() { printf 'tree %s\nparent %s\nauthor x <x@x> 1 +0000\ncommitter x <x@x> 1 +0000\n\nm\n' "$1" $($g rev-parse main) | o commit; }
		t() { printf "$1" | o tree; }
		blob=$(echo x | o blob); hex=$(echo $blob | sed 's/../\\\\x&/g'); raw=$(printf "$hex")
		`
	for name, tc := range map[string]struct {
		before, script, ref, want string
	}{
		"checked out": {"", "echo b >b; $g add b; $g commit -qm two", "main",
			"is checked out"},
		"checked out, by +": {"", "$g commit -q --amend -m two", "+main", "is checked out"},
		"in another worktree": {"$g worktree add -q ../wt -b other",
			"$g branch -f other HEAD 2>/dev/null || " +
				"$g update-ref refs/heads/other $($g commit-tree -p HEAD -m x HEAD^{tree})",
			"other", "is checked out"},
		"no branch": {"", work, "nothing", "has no ref"},
		"already": {"$g branch other", "$g commit -q --allow-empty -m x; $g branch x HEAD^",
			"x:other", "already"},
		"amended": {"$g checkout -qb other; echo 1 >o; $g add o; $g commit -qm first; " +
			"$g checkout -q main",
			"$g checkout -q other; $g commit -q --amend -m second", "other", "not a fast-forward"},
		"another tag": {"$g tag v1", "$g commit -q --allow-empty -m x; $g tag -f v1", "v1",
			"another tag"},
		"in the way":  {"$g branch agent", work, "work:agent/x", "in the way"},
		"a remote":    {"", work, "work:refs/remotes/x/y", "is no branch"},
		"HEAD itself": {"", work, "refs/heads/work:refs/x", "is no branch"},
		"a blob": {"", "b=$(echo x | $g hash-object -w --stdin); $g tag t $b; " +
			"cp .git/refs/tags/t .git/refs/heads/t; rm .git/refs/tags/t", "t", "names a blob"},
		"missing": {"", work +
			"rm -f .git/objects/$($g rev-parse work^{tree}:s/t/c | sed 's,^..,&/,')",
			"work", "is missing"},
		"another content": {"", work + `o=.git/objects/$($g rev-parse work:b | sed 's,^..,&/,')
			p=.git/objects/$($g rev-parse work^:b | sed 's,^..,&/,'); cp -f $p $o`,
			"work", "its content is that of object"},
		"garbage after": {"", work + `o=.git/objects/$($g rev-parse work:b | sed 's,^..,&/,')
			chmod u+w $o; echo x >>$o`,
			"work", "something follows it"},
		"a name .git": {"", made + `h=$($g hash-object -w --stdin </dev/null)
			printf "100644 .git\0" >/tmp/t$$; printf "$(echo $h | sed 's/../\\x&/g')" >>/tmp/t$$
			tree=$($g hash-object -t tree -w --literally /tmp/t$$); rm /tmp/t$$
			$g update-ref refs/heads/evil $(c $tree)`,
			"evil", "git's own"},
		"a name .GiT": {"", made + `printf "100644 .GiT \0" >/tmp/t$$
			echo $blob | xxd -r -p >>/tmp/t$$ 2>/dev/null ||
			perl -e 'print pack("H*", $ARGV[0])' $blob >>/tmp/t$$
			tree=$($g hash-object -t tree -w --literally /tmp/t$$); rm /tmp/t$$
			$g update-ref refs/heads/evil $(c $tree)`,
			"evil", "git's own"},
		"a submodule's url": {"", made +
			`printf '[submodule "a"]\n\tpath = a\n\turl = -u./evil\n' >.gitmodules
			$g add .gitmodules; $g checkout -qb evil; $g commit -qm evil`,
			"evil", "looks like an option"},
		"a submodule's name": {"", made +
			`printf '[submodule "../../x"]\n\tpath = a\n\turl = https://example.com/x\n' \
				>.gitmodules
			$g add .gitmodules; $g checkout -qb evil; $g commit -qm evil`,
			"evil", "leads out"},
		".gitmodules is a link": {"", made +
			`tree=$(printf "120000 blob $blob\t.gitmodules\n" | $g mktree)
			$g update-ref refs/heads/evil $(c $tree)`,
			"evil", ".gitmodules is a link"},
		"a bad author": {"", made + `tree=$($g rev-parse HEAD^{tree})
			x=$(printf 'tree %s\nauthor x\ncommitter x <x@x> 1 +0000\n\nm\n' $tree | o commit)
			$g update-ref refs/heads/evil $x`, "evil", "author is not well-formed"},
	} {
		t.Run(name, func(t *testing.T) {
			f := repositoryFixture(t)
			f.onHost(".", tc.before)
			w := f.inJail("w", tc.script)
			old := snapshotText(f.real)
			_, err := gitOnly(t, w, tc.ref)
			if !errors.Is(err, ErrGitOnly) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if diff := cmp.Diff(old, snapshotText(f.real)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A branch of a session that goes on: what was taken is no change any more, also under another name
// and of a pack, and what the tool does to it afterwards is one.
func TestGitOnlyOfALiveShadow(t *testing.T) {
	f := repositoryFixture(t)
	l := f.live("w")
	show := func() string {
		t.Helper()
		shown, err := l.w.Show(t.Context(), ShowOptions{Git: readerHere{}, Live: true},
			func(Change) error { return nil })
		must(t, err)
		text := ""
		for _, r := range shown.Git {
			text += strings.Join(r.Lines, "\n") + "\n"
		}
		return text
	}
	take := func(ref string) {
		t.Helper()
		want, err := gitrepo.ParseWant(ref)
		must(t, err)
		_, err = l.w.Commit(t.Context(), CommitOptions{GitOnly: &want, Git: readerHere{},
			Live: true, Keep: keepAll})
		must(t, err)
		f.onHost(".", "$g fsck --strict 2>&1")
	}
	const g = "g=\"" + gitAs + "\"; export HOME=/nonexistent; "
	l.do(g + "$g checkout -qb work; echo b >b; $g add b; $g commit -qm two")
	if text := show(); !strings.Contains(text, `new branch work at `) {
		t.Errorf("it shows %s", text)
	}
	take("work")
	take("work:agent/work")
	if text := show(); strings.Contains(text, "branch") {
		t.Errorf("what was taken is shown: %s", text)
	}
	l.do(g + "echo c >>b; $g commit -qam three; $g gc -q --prune=now")
	if text := show(); !strings.Contains(text, `1 commit: "three"`) ||
		strings.Contains(text, "deleted") {
		t.Errorf("it shows %s", text)
	}
	take("work")
	take("work:agent/work")
	if got := f.onHost(".", "$g log --format=%s work agent/work"); got != "three\ntwo\none\n" {
		t.Errorf("the history is %q", got)
	}
	if text := show(); strings.Contains(text, "branch") || strings.Contains(text, "work") &&
		!strings.Contains(text, "HEAD: main -> work") {
		t.Errorf("what was taken is shown: %s", text)
	}
	l.do(g + "$g checkout -q main; $g branch -D work")
	if text := show(); !strings.Contains(text, "branch work deleted") {
		t.Errorf("it shows %s", text)
	}
}
