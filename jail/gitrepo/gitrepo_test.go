package gitrepo

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// dirFiles are two git directories on the disk.
type dirFiles [2]string

func (d dirFiles) Open(side Side, path string) (*os.File, int64, error) {
	full := filepath.Join(d[side], path)
	info, err := os.Lstat(full)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, 0, fs.ErrNotExist
	case err != nil:
		return nil, 0, err
	case info.IsDir():
		return nil, 0, ErrDirectory
	case !info.Mode().IsRegular():
		return nil, 0, ErrIrregular
	}
	f, err := os.Open(full)
	return f, info.Size(), err
}

func (d dirFiles) List(side Side, path string) (names []string, err error) {
	entries, err := os.ReadDir(filepath.Join(d[side], path))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// git runs a script in a directory with dates that rise by a second with each commit.
func git(t testing.TB, dir, script string) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	cmd := exec.Command("sh", "-ec", `g() {
	git -c user.name=x -c user.email=x@example.com -c init.defaultBranch=main -c gc.auto=0 "$@"
}
n=$(cat .clock 2>/dev/null || echo 1700000000)
c() {
	n=$((n+1)); echo $n >.clock
	GIT_AUTHOR_DATE="$n +0000" GIT_COMMITTER_DATE="$n +0000" g commit -q --allow-empty "$@"
}
`+script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
	return string(out)
}

// sides makes a repository of one commit, and a copy in which a script ran.
func sides(t testing.TB, script string) (files dirFiles, real, shadow string) {
	t.Helper()
	base := t.TempDir()
	real, shadow = filepath.Join(base, "real"), filepath.Join(base, "shadow")
	must(t, os.Mkdir(real, 0o700))
	git(t, real, "g init -q; echo a >a; g add a; c -m one; c -m two; g branch old")
	must(t, os.CopyFS(shadow, os.DirFS(real)))
	git(t, shadow, script)
	return dirFiles{filepath.Join(real, ".git"), filepath.Join(shadow, ".git")}, real, shadow
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// explained returns the lines of a report, with names of commits replaced by their order in the
// history of all refs.
func explained(t *testing.T, files dirFiles, shadow string) []string {
	t.Helper()
	report, err := Explain(t.Context(), files)
	must(t, err)
	report.Write()
	text := strings.Join(report.Lines, "\n")
	for line := range strings.Lines(git(t, shadow,
		`g rev-list --all --reflog --objects --no-object-names | while read o; do
			case $(g cat-file -t $o) in
			commit) echo $o "$(g log -1 --format=%s $o)";;
			tag) echo $o tag;;
			esac
		done`)) {
		name, title, _ := strings.Cut(strings.TrimSpace(line), " ")
		text = strings.ReplaceAll(text, name[:7], "<"+strings.Fields(title)[0]+">")
	}
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// A report says what git would say.
func TestExplain(t *testing.T) {
	for name, tc := range map[string]struct {
		script string
		want   []string
	}{
		"nothing":  {"", nil},
		"a commit": {"c -m three", []string{`main <two>..<three>, 1 commit: "three"`}},
		"many": {"for i in 1 2 3 4 5; do c -m m$i; done",
			[]string{`main <two>..<m5>, 5 commits: "m5", "m4", "m3" and 2 more`}},
		"a branch": {"g checkout -q -b feature; c -m f",
			[]string{"HEAD: main -> feature", `new branch feature at <f>, 1 commit: "f"`}},
		"no branch is checked out": {"g checkout -q --detach",
			[]string{"HEAD: main -> <two> (no branch)"}},
		"a branch without commits": {"g branch same",
			[]string{`new branch same at <two>: "two"`}},
		"amended": {"c --amend -m two-b",
			[]string{`main <two>...<two-b>, rewritten: 1 commit gone, 1 commit new: "two-b"`}},
		"reset": {"g reset -q --hard HEAD^",
			[]string{`main <two>...<one>, rewritten: 1 commit gone: "one"`}},
		"a branch is deleted": {"g branch -D old", []string{"branch old deleted, was <two>"}},
		"merge": {"g checkout -q -b x; c -m x; g checkout -q main; c -m y; g merge -q -m m x",
			[]string{`main <two>..<m>, 3 commits: "m", "y", "x"`,
				`new branch x at <x>, 1 commit: "x"`}},
		"tags": {"g tag light; g tag -a -m note heavy",
			[]string{`new tag heavy at <tag>: "two"`, `new tag light at <two>: "two"`}},
		"stash": {"echo b >a; g stash -q",
			[]string{`new stash at <WIP>: "WIP on main: <two> two"`}},
		"packed": {"c -m three; g branch p; c -m four; g gc -q --prune=now",
			[]string{`main <two>..<four>, 2 commits: "four", "three"`,
				`new branch p at <three>, 1 commit: "three"`}},
		"deltas": {`seq 1 4000 >a; g add a; c -m d0
			for i in 1 2 3 4 5 6; do echo $i >>a; g add a; c -m d$i; done
			g repack -q -a -d -f --depth=50 --window=50`,
			[]string{`main <two>..<d6>, 7 commits: "d6", "d5", "d4" and 4 more`}},
		"titles are made safe": {"c -m \"$(printf 'a\\033[31mred\\007\\342\\200\\256b')\"",
			[]string{`main <two>..<a[31mredb>, 1 commit: "a[31mredb"`}},
		"a symbolic ref": {"g symbolic-ref refs/remotes/origin/HEAD refs/remotes/origin/main",
			[]string{`new remote branch origin/HEAD at ref: refs/remotes/origin/main`}},
	} {
		t.Run(name, func(t *testing.T) {
			files, _, shadow := sides(t, tc.script)
			got := explained(t, files, shadow)
			for i := range got {
				got[i] = strings.ReplaceAll(got[i], "<a\x1b[31mred\a\u202eb>", "<a[31mredb>")
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The control of every other test: the counts are those of git, also in a history of merges with
// dates that lie.
func TestCountsAreGits(t *testing.T) {
	files, _, shadow := sides(t, `for i in $(seq 1 40); do
		g checkout -q -b t$i $(g rev-list --all | sed -n "$((i*7%5+1))p")
		n=$((n - (i%4)*3)); c -m x$i
		[ $((i%3)) = 0 ] && GIT_COMMITTER_DATE="$n +0000" g merge -q -m "m$i" t$((i/2+1)) || true
	done; g checkout -q main; g merge -q t40 || true`)
	report, err := Explain(t.Context(), files)
	must(t, err)
	if len(report.Refs) < 40 {
		t.Fatalf("only %d refs changed", len(report.Refs))
	}
	old := git(t, shadow, "g rev-parse old")
	for _, c := range report.Refs {
		count := git(t, shadow, "g rev-list --count "+c.After+" ^"+strings.TrimSpace(old))
		if c.Before != "" {
			count = git(t, shadow, "g rev-list --count "+c.After+" ^"+c.Before)
		}
		if got := strings.TrimSpace(count); got != strconv.Itoa(c.Commits) {
			t.Errorf("%s: %d commits, and git counts %s", c.Ref, c.Commits, got)
		}
	}
}

// What is not understood is said in a sentence.
func TestNotUnderstood(t *testing.T) {
	for name, tc := range map[string]struct{ script, want string }{
		"sha256": {"rm -rf .git; g init -q --object-format=sha256; c -m x",
			"its objects are named by sha256"},
		"reftable": {"mkdir .git/reftable; echo x >.git/reftable/tables.list",
			"its refs are a reftable"},
		"borrowed": {"echo /x >.git/objects/info/alternates",
			"it borrows objects of another repository"},
		"worktree":  {"echo .. >.git/commondir", "it belongs to a linked worktree"},
		"version 9": {"git config core.repositoryformatversion 9", "it has format version 9"},
	} {
		t.Run(name, func(t *testing.T) {
			files, _, _ := sides(t, tc.script)
			report, err := Explain(t.Context(), files)
			must(t, err)
			if report.NotUnderstood != tc.want || report.Refs != nil {
				t.Errorf("it says %+v", report)
			}
		})
	}
}

// Hostile repositories: each is a sentence, and no more.
func TestHostile(t *testing.T) {
	const missing = "0123456789012345678901234567890123456789"
	for name, tc := range map[string]struct{ script, want string }{
		"a ref to a missing object": {"echo " + missing + " >.git/refs/heads/x",
			"new branch x at 0123456 (broken: object " + missing + " is missing)"},
		"a ref that is text": {"echo hello >.git/refs/heads/x",
			"new branch x at hello (broken: it names no object)"},
		"a ref with escapes": {
			"cp .git/refs/heads/main \".git/refs/heads/$(printf 'a\\033]0;x\\007')\"",
			"new branch a]0;x at <two> (broken: git takes no ref of this name)"},
		"a ref that is a link": {"ln -s /etc/passwd .git/refs/heads/x", ""},
		"another hash": {`c -m three; o=$(g rev-parse HEAD); p=$(g rev-parse old)
			o=.git/objects/$(echo $o | sed 's,^..,&/,')
			p=.git/objects/$(echo $p | sed 's,^..,&/,'); cp -f $p $o`,
			"its content is that of object"},
		"not zlib": {`c -m three; o=.git/objects/$(g rev-parse HEAD | sed 's,^..,&/,')
			chmod u+w $o; echo x >$o`, "broken: object"},
		"more follow": {`c -m three; o=.git/objects/$(g rev-parse HEAD | sed 's,^..,&/,')
			chmod u+w $o; echo x >>$o`, "something follows it"},
	} {
		t.Run(name, func(t *testing.T) {
			files, _, shadow := sides(t, tc.script)
			report, err := Explain(t.Context(), files)
			must(t, err)
			report.Write()
			two := strings.TrimSpace(git(t, shadow, "cat .git/refs/heads/old"))[:7]
			text := strings.ReplaceAll(strings.Join(report.Lines, "\n"), two, "<two>")
			if !strings.Contains(text, tc.want) || strings.ContainsAny(text, "\x1b\a") {
				t.Errorf("it says %q", text)
			}
		})
	}
}

// A reading that takes too long ends.
func TestExplainEnds(t *testing.T) {
	files, _, _ := sides(t, "c -m three")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Explain(ctx, files); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
