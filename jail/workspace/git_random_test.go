package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// gitActions are what a tool or the host does to a repository; N is a number of its own in each.
var gitActions = []string{
	`echo N >>a; $g commit -qam cN`,
	`echo N >fN; $g add -A .; $g commit -qm cN`,
	`mkdir -p d; echo N >d/fN; $g add d; $g commit -qm cN; echo staged >d/s; $g add d/s`,
	`$g checkout -q -b bN; echo N >>d/x; $g commit -qam bN; $g checkout -q main`,
	`$g branch topic/N; $g branch -f moving HEAD`,
	`$g tag -f tN; $g tag -f -a annotated -m N`,
	`$g checkout -q -b mN HEAD^; echo N >mN; $g add mN; $g commit -qm mN; $g checkout -q main; $g merge -q --no-edit mN`,
	`$g checkout -q -b rN HEAD^; echo N >rN; $g add rN; $g commit -qm rN; $g rebase -q main`,
	`$g checkout -q -b xN HEAD^; echo N >a; $g commit -qam xN; $g rebase -q main`,
	`$g checkout -q -f main`,
	`$g rebase --abort`,
	`echo N >>a; $g stash -q`,
	`$g stash pop -q`,
	`$g gc -q`,
	`$g repack -dq; $g pack-refs --all`,
	`$g branch -D moving`,
	`$g reset -q --hard HEAD^`,
	`$g worktree add -q wN; (cd wN; echo N >wN; $g add wN; $g commit -qm wN)`,
	`$g worktree remove -f $(ls -d w* | head -1)`,
	`$g submodule --quiet add ./nest subN; $g commit -qm subN`,
	`(cd lib; echo N >>l; $g commit -qam lN); $g add lib; $g commit -qm lN`,
	`(cd nest; echo N >>n; $g commit -qam nN; $g gc -q)`,
	`$g init -q newN; (cd newN; echo N >x; $g add x; $g commit -qm x)`,
	`$g clone -q --bare . bareN.git; $g push -q ./bareN.git HEAD:refs/heads/pushed`,
	`$g config some.key N; echo x >.git/hooks/post-merge; echo y >.gitattributes; $g add .gitattributes; $g commit -qm attr`,
	`rm -rf nest`,
}

// inJailOnly are actions that git itself warns of beside others: they remove objects which another
// program is about to name, or name objects that another repository may remove.
var inJailOnly = []string{
	`$g gc -q --prune=now`,
	`$g repack -adq`,
	`$g reflog expire --expire=now --all; $g prune`,
	// By a path that the host has too: git writes that of the jail.
	`$g clone -q --shared . cloneN; echo ../../../.git/objects >cloneN/.git/objects/info/alternates`,
}

// Whatever git did in a jail and outside, no commit, partial commit or revert breaks a repository
// of the real directory: git's own judgement, of random sequences.
func TestRandomGit(t *testing.T) {
	seeds := 4
	if os.Getenv("JAIL_TEST_LONG") != "" {
		seeds = 200
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			f := repositoryFixture(t)
			f.onHost(".", `mkdir ../l; cd ../l; $g init -q; echo l >l; $g add l; $g commit -qm l`)
			f.onHost(".",
				`$g submodule --quiet add ../l lib; mkdir nest; cd nest; $g init -q; echo n >n; $g add n; $g commit -qm n; $g commit -q --allow-empty -m n2`)
			f.onHost(".",
				`echo nest >.gitignore; $g add .gitignore; $g commit -qm two; $g worktree add -q ../outside; rm -r ../outside`)
			g := &randomGit{fixture: f, r: rand.New(rand.NewPCG(uint64(seed), 19))}
			for round := range 2 {
				g.round(fmt.Sprint("w", round))
			}
		})
	}
}

type randomGit struct {
	*fixture
	r      *rand.Rand
	n      int
	script strings.Builder
}

// actions returns a script that goes on after actions that fail.
func (g *randomGit) actions(most int, of []string) string {
	var b strings.Builder
	for range 1 + g.r.IntN(most) {
		g.n++
		fmt.Fprintf(&b, "( %s ) >/dev/null 2>&1 || :\n",
			strings.ReplaceAll(of[g.r.IntN(len(of))], "N", fmt.Sprint(g.n)))
	}
	g.script.WriteString(b.String())
	return b.String()
}

func (g *randomGit) round(id string) {
	g.t.Helper()
	w := g.prepareAs(id, Caller{}, 256<<20, 20000)
	a := g.run(w, order{Script: "export HOME=/nonexistent; g=\"" + gitAs + "\"\n" + g.actions(8,
		slices.Concat(gitActions, inJailOnly)) + "$g fsck --strict --no-dangling 2>&1"})
	if a.Script != "" {
		g.t.Fatalf("control: git broke its own repository: %s\n%s", a.Out, g.script.String())
	}
	must(g.t, w.Freeze())
	if g.r.IntN(3) == 0 {
		fmt.Fprintln(&g.script, "# outside:")
		g.onHost(".", "set +e\n"+g.actions(2, gitActions)+"true")
		g.judge("the host's own actions")
	}
	for range 3 {
		if w.Info().State != Frozen {
			break
		}
		o := g.choice(w)
		r, err := w.Commit(g.t.Context(), o)
		if err != nil && !errors.Is(err, ErrConflict) && !errors.Is(err, ErrProtected) &&
			!errors.Is(err, ErrApart) {
			g.t.Fatalf("commit: %v", err)
		}
		g.judge(fmt.Sprintf("a commit of %q with protected %v: %v, held %v", o.Paths,
			o.IncludeProtected, err, r.Held))
		if err != nil || g.r.IntN(2) == 0 {
			continue
		}
		if g.r.IntN(2) == 0 {
			fmt.Fprintln(&g.script, "# outside, after the commit:")
			g.onHost(".", "set +e\n"+g.actions(1, gitActions)+"true")
			g.judge("the host's own actions after it")
		}
		if _, err := w.Revert(g.t.Context(), RevertOptions{}); err != nil && !errors.Is(err,
			ErrConflict) {
			g.t.Fatalf("revert: %v", err)
		}
		g.judge("a revert")
	}
}

// choice names everything, or some of the changes and some directories above them.
func (g *randomGit) choice(w *Workspace) CommitOptions {
	o := CommitOptions{IncludeProtected: g.r.IntN(2) == 0, Theirs: g.r.IntN(4) == 0, Keep: keepAll}
	changes := changesOf(g.t, w)
	if len(changes) == 0 || g.r.IntN(3) == 0 {
		return o
	}
	o.Exact = g.r.IntN(3) == 0
	for range 1 + g.r.IntN(len(changes)) {
		path := string(changes[g.r.IntN(len(changes))].Path)
		for !o.Exact && g.r.IntN(2) == 0 && strings.Contains(path, "/") {
			path = parentOf(path)
		}
		o.Paths = append(o.Paths, Name(path))
	}
	return o
}

// judge asks git about every repository that there is.
func (g *randomGit) judge(after string) {
	g.t.Helper()
	must(g.t, filepath.WalkDir(g.real, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		for _, name := range []string{"HEAD", "objects", "refs"} {
			if _, err := os.Lstat(filepath.Join(path, name)); err != nil {
				return nil
			}
		}
		cmd := exec.Command("git", "-c", "safe.directory=*", "--git-dir="+path, "--work-tree="+
			g.real, "fsck", "--strict", "--no-dangling")
		if out, err := cmd.CombinedOutput(); err != nil {
			g.t.Fatalf("after %s git says of %s: %s\n%s", after, strings.TrimPrefix(path, g.real),
				out, g.script.String())
		}
		return nil
	}))
}
