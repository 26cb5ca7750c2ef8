package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jail-sandbox/jail/policy"
)

func numbered(n int, change map[int]string) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		if text, ok := change[i]; ok {
			b.WriteString(text)
			continue
		}
		fmt.Fprintf(&b, "%d\n", i)
	}
	return b.String()
}

func showing(t *testing.T, w *Workspace) (changes []Change, hunks map[Name][]Hunk, shown Shown) {
	t.Helper()
	hunks = map[Name][]Hunk{}
	shown, err := w.Show(t.Context(),
		ShowOptions{Hunks: func(f FileHunks) error { hunks[f.Path] = f.Hunks; return nil }},
		func(c Change) error {
			changes = append(changes, c)
			return nil
		})
	must(t, err)
	return changes, hunks, shown
}

func TestHunks(t *testing.T) {
	f := newFixture(t)
	must(t, os.WriteFile(f.real+"/n", []byte(numbered(60, nil)), 0o644))
	f.write("other")
	w := f.shadow("r1",
		`sed -i -e s/^5$/five/ -e s/^30$/thirty/ -e 55d n; chmod 755 n; echo x >>other`)
	_, hunks, shown := showing(t, w)
	if len(hunks["n"]) != 3 || len(hunks["other"]) != 1 {
		t.Fatalf("%+v", hunks)
	}
	take := func(o CommitOptions) (Result, error) { return w.Commit(t.Context(), o) }
	for name, c := range map[string]struct {
		o    CommitOptions
		want error
	}{
		"no digest": {CommitOptions{Hunks: map[Name][]int{"n": {0}}}, ErrDigest},
		"no such hunk": {CommitOptions{Digest: shown.Digest, Hunks: map[Name][]int{"n": {3}}},
			ErrNoChange},
		"negative": {CommitOptions{Digest: shown.Digest, Hunks: map[Name][]int{"n": {-1}}},
			ErrNoChange},
		"no such file": {CommitOptions{Digest: shown.Digest, Hunks: map[Name][]int{"m": {0}}},
			ErrNoChange},
	} {
		if _, err := take(c.o); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	r, err := take(CommitOptions{Digest: shown.Digest, Hunks: map[Name][]int{"n": {2, 0}},
		Keep: keepAll})
	must(t, err)
	if got, want := content(t, f.real+"/n"), numbered(60,
		map[int]string{5: "five\n", 55: ""}); got != want || r.State != Frozen {
		t.Fatalf("state %s, %s", r.State, cmp.Diff(want, got))
	}
	if st, _ := os.Stat(f.real + "/n"); st.Mode() != 0o644 {
		t.Errorf("the mode came with a part of the hunks: %v", st.Mode())
	}
	changes, hunks, shown := showing(t, w)
	if len(hunks["n"]) != 1 || len(changes) != 2 || changes[0].Conflict != "" {
		t.Fatalf("left %+v %+v", brief(changes), hunks)
	}
	_, err = w.Revert(t.Context(), RevertOptions{})
	must(t, err)
	if got := content(t, f.real+"/n"); got != numbered(60, nil) {
		t.Fatalf("after the revert: %s", got)
	}
	_, hunks, shown = showing(t, w)
	if len(hunks["n"]) != 3 {
		t.Fatalf("after the revert there are %d hunks", len(hunks["n"]))
	}
	_, err = take(CommitOptions{Digest: shown.Digest, Hunks: map[Name][]int{"n": {0, 1, 2}},
		Paths: []Name{"other"}})
	must(t, err)
	if st, _ := os.Stat(f.real + "/n"); st.Mode() != 0o755 || w.Info().State != Committed {
		t.Errorf("mode %v, state %s", st.Mode(), w.Info().State)
	}
}

// Any choice of hunks is what patch(1) makes of the same hunks.
func TestSomeHunksAgreeWithPatch(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(1, 9))
	for range 60 {
		old, text := randomText(r), randomText(r)
		if r.IntN(2) == 0 {
			text = edited(r, old)
		}
		hunks, err := unified(old, text)
		must(t, err)
		var take []int
		var patch bytes.Buffer
		p := &patcher{}
		more := 0
		for n, h := range hunks {
			if r.IntN(2) == 0 {
				take = append(take, n)
			}
			_ = h
		}
		got, _, err := someHunks(old, text, take)
		must(t, err)
		_ = p
		fmt.Fprintf(&patch, "diff --git a/f b/f\n--- a/f\n+++ b/f\n")
		for n, h := range hunks {
			if !slices.Contains(take, n) {
				continue
			}
			froms, tos := lineCounts(h)
			fmt.Fprintf(&patch, "@@ -%s +%s @@\n", hunkRange(h.FromLine, froms),
				hunkRange(h.FromLine+more, tos))
			more += tos - froms
			for _, l := range h.Lines {
				line, complete := strings.CutSuffix(l.Content, "\n")
				fmt.Fprintf(&patch, "%c%s\n", lineMark(l.Kind), line)
				if !complete {
					fmt.Fprintln(&patch, noNewline)
				}
			}
		}
		if len(take) == 0 || old == "" {
			continue
		}
		must(t, os.WriteFile(dir+"/f", []byte(old), 0o644))
		cmd := exec.Command("git", "apply", "--unidiff-zero", "--whitespace=nowarn", "-")
		cmd.Dir, cmd.Stdin = dir, &patch
		whole := patch.String()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git apply: %v %s\n%s", err, out, whole)
		}
		b, err := os.ReadFile(dir + "/f")
		if err != nil && got == "" {
			// git removes what becomes empty
			continue
		}
		must(t, err)
		if string(b) != got {
			t.Fatalf("hunks %v of\n%s\n%s", take, whole, cmp.Diff(string(b), got))
		}
	}
}

func randomText(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(40) {
		fmt.Fprintf(&b, "%c\n", 'a'+r.IntN(6))
	}
	if r.IntN(4) == 0 {
		return strings.TrimSuffix(b.String(), "\n")
	}
	return b.String()
}

func edited(r *rand.Rand, old string) string {
	lines := strings.SplitAfter(old, "\n")
	for range 1 + r.IntN(4) {
		i := r.IntN(len(lines))
		switch r.IntN(3) {
		case 0:
			lines[i] = "changed\n"
		case 1:
			lines = slices.Insert(lines, i, "inserted\n")
		default:
			lines = slices.Delete(lines, i, i+1)
			if len(lines) == 0 {
				return ""
			}
		}
	}
	return strings.Join(lines, "")
}

// Where merge3 is sure, git merge-file has the same.
func TestMergeAgreesWithGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(2, 9))
	clean, refused := 0, 0
	for range 150 {
		base := numbered(10+r.IntN(40), nil)
		a, b := edited(r, base), edited(r, base)
		got, ok := merge3(base, a, b)
		if !ok {
			refused++
			continue
		}
		clean++
		for name, text := range map[string]string{"base": base, "a": a, "b": b} {
			must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		}
		cmd := exec.Command("git", "merge-file", "-p", "a", "base", "b")
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil || string(out) != got {
			t.Fatalf("git: %v\nbase %q\na %q\nb %q\n%s", err, base, a, b,
				cmp.Diff(string(out), got))
		}
	}
	if clean < 20 || refused < 5 {
		t.Errorf("%d clean, %d refused: the test tests nothing", clean, refused)
	}
}

func TestMergeAndTheirs(t *testing.T) {
	setup := func(t *testing.T, keep bool) (*fixture, *Workspace) {
		f := newFixture(t)
		must(t, os.WriteFile(f.real+"/n", []byte(numbered(40, nil)), 0o644))
		must(t, os.WriteFile(f.real+"/bin", []byte("a\x00b"), 0o644))
		f.write("gone")
		w := f.shadow("r1", `sed -i s/^5$/five/ n; chmod 755 n; echo x >>bin; rm gone`)
		_, _, err := w.Review(t.Context())
		must(t, err)
		if keep {
			must(t, w.Keep())
		}
		return f, w
	}
	host := func(t *testing.T, f *fixture, line int) {
		must(t,
			os.WriteFile(f.real+"/n", []byte(numbered(40, map[int]string{line: "host\n"})), 0o644))
	}
	t.Run("clean", func(t *testing.T) {
		f, w := setup(t, true)
		host(t, f, 30)
		if _, err := w.Commit(t.Context(), CommitOptions{}); !errors.Is(err, ErrConflict) {
			t.Fatalf("control: without --merge: %v", err)
		}
		r, err := w.Commit(t.Context(), CommitOptions{Merge: true, Keep: keepAll})
		must(t, err)
		if got, want := content(t, f.real+"/n"), numbered(40,
			map[int]string{5: "five\n", 30: "host\n"}); got != want {
			t.Error(cmp.Diff(want, got))
		}
		if st, _ := os.Stat(f.real + "/n"); st.Mode() != 0o755 || r.State != Committed {
			t.Errorf("mode %v, state %s", st.Mode(), r.State)
		}
		_, err = w.Revert(t.Context(), RevertOptions{})
		must(t, err)
		if got, want := content(t, f.real+"/n"),
			numbered(40, map[int]string{30: "host\n"}); got != want {
			t.Errorf("the revert did not bring back what the host had made of it: %s",
				cmp.Diff(want, got))
		}
	})
	t.Run("same line", func(t *testing.T) {
		f, w := setup(t, true)
		host(t, f, 5)
		var e *ConflictError
		if _, err := w.Commit(t.Context(), CommitOptions{Merge: true}); !errors.As(err, &e) ||
			!strings.Contains(err.Error(), "same lines") {
			t.Fatalf("got %v", err)
		}
		if c := e.Conflicts[0]; c.Real == nil || c.Shadow == nil ||
			c.Real.SHA256 == c.Shadow.SHA256 {
			t.Errorf("both sides: %+v", c)
		}
	})
	t.Run("no base", func(t *testing.T) {
		f, w := setup(t, false)
		host(t, f, 30)
		if _, err := w.Commit(t.Context(), CommitOptions{Merge: true}); !errors.Is(err,
			ErrConflict) || !strings.Contains(err.Error(), "was not saved") {
			t.Fatalf("got %v", err)
		}
	})
	t.Run("binary", func(t *testing.T) {
		f, w := setup(t, true)
		must(t, os.WriteFile(f.real+"/bin", []byte("c\x00d"), 0o644))
		if _, err := w.Commit(t.Context(), CommitOptions{Merge: true}); !errors.Is(err,
			ErrConflict) {
			t.Fatalf("got %v", err)
		}
	})
	t.Run("theirs", func(t *testing.T) {
		f, w := setup(t, true)
		host(t, f, 5)
		must(t, os.WriteFile(f.real+"/gone", []byte("edited"), 0o644))
		_, err := w.Commit(t.Context(), CommitOptions{Theirs: true, Keep: keepAll})
		must(t, err)
		if got, want := content(t, f.real+"/n"),
			numbered(40, map[int]string{5: "five\n"}); got != want {
			t.Error(cmp.Diff(want, got))
		}
		_, err = w.Revert(t.Context(), RevertOptions{})
		must(t, err)
		if got := content(t, f.real+"/gone"); got != "edited" {
			t.Errorf("gone has %q", got)
		}
	})
}

func TestPatternsAndClasses(t *testing.T) {
	f := newFixture(t)
	f.write("a*b")
	w := f.shadow("r1", `mkdir -p src/deep docs .github/workflows; echo x >src/a.go; echo x >src/deep/b.go; echo x >docs/x.md; echo x >docs/y.txt
		echo x >'a*b'; echo x >aXb; echo x >.github/workflows/w.yml; echo x >Makefile; echo x >.envrc; chmod +x src/a.go`)
	cases := map[string]struct {
		o    CommitOptions
		want []string
		err  error
	}{
		"star": {CommitOptions{Paths: []Name{"docs/*.md"}}, []string{"docs", "docs/x.md"}, nil},
		"spans": {CommitOptions{Paths: []Name{"**/*.go"}},
			[]string{"src", "src/a.go", "src/deep", "src/deep/b.go"}, nil},
		"no span":        {CommitOptions{Paths: []Name{"src/*.go"}}, []string{"src", "src/a.go"}, nil},
		"a name wins":    {CommitOptions{Paths: []Name{"a*b"}}, []string{"a*b"}, nil},
		"exact":          {CommitOptions{Paths: []Name{"docs"}, Exact: true}, []string{"docs"}, nil},
		"exact, no star": {CommitOptions{Paths: []Name{"docs/*"}, Exact: true}, nil, ErrNoChange},
		"none":           {CommitOptions{Paths: []Name{"*.rs"}}, nil, ErrNoChange},
		"plain": {CommitOptions{Classes: []policy.Class{Plain}}, []string{".github",
			"a*b", "aXb", "docs", "docs/x.md", "docs/y.txt", "src", "src/deep", "src/deep/b.go"},
			nil},
		"ci": {CommitOptions{Classes: []policy.Class{policy.CI}},
			[]string{".github", ".github/workflows", ".github/workflows/w.yml"}, nil},
		"executable": {CommitOptions{Classes: []policy.Class{Executable}},
			[]string{"src", "src/a.go"}, nil},
		"a held one": {CommitOptions{Classes: []policy.Class{policy.Shell}}, nil, ErrProtected},
		"class does not name": {CommitOptions{Classes: []policy.Class{policy.Shell},
			IncludeProtected: true}, nil, ErrProtected},
		"bad": {CommitOptions{Paths: []Name{"[a"}}, nil, errAny},
	}
	changes := changesOf(t, w)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s, err := choose(slices.Clone(changes), c.o)
			taken, held := s.taken()
			if err == nil && len(taken) == 0 && len(held) > 0 {
				err = ErrProtected
			}
			if c.err != nil {
				if err == nil || c.err != errAny && !errors.Is(err, c.err) {
					t.Fatalf("got %v %v, want %v", brief(taken), err, c.err)
				}
				return
			}
			must(t, err)
			var got []string
			for _, c := range taken {
				got = append(got, string(c.Path))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

var errAny = errors.New("any")

func FuzzPattern(f *testing.F) {
	f.Add("**/a/**/*b", "x/a/y/z/cb")
	f.Add("**/**/**/**/**/**/x", strings.Repeat("a/", 60)+"b")
	f.Fuzz(func(t *testing.T, text, name string) {
		if match, err := compilePattern(text); err == nil {
			match(name)
		}
	})
}
