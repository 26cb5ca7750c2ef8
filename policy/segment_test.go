package policy

import (
	"slices"
	"testing"

	"github.com/jail-sandbox/jail/policy/paths"
)

// words returns every text over a and b of at most n letters.
func words(n int) []string {
	out := []string{""}
	for i := 0; i < len(out); i++ {
		if len(out[i]) < n {
			out = append(out, out[i]+"a", out[i]+"b")
		}
	}
	return out
}

// allSegments returns every segment whose literal texts have at most two letters.
func allSegments() []segment {
	var out []segment
	for _, pre := range words(2) {
		out = append(out, segment{pre: pre})
		for _, suf := range words(2) {
			out = append(out, segment{star: true, pre: pre, suf: suf})
		}
	}
	return out
}

// TestSegmentsExhaustively asks every pair of small segments about every short name.
// Texts of two letters on each side overlap in every way there is within six letters.
func TestSegmentsExhaustively(t *testing.T) {
	segments, names := allSegments(), words(6)
	matched := make([][]bool, len(segments))
	for i, s := range segments {
		for _, name := range names {
			matched[i] = append(matched[i], s.matches(name))
		}
	}
	for i, s := range segments {
		for j, u := range segments {
			met := s.meet(u)
			subset := true
			for k, name := range names {
				both := matched[i][k] && matched[j][k]
				if got := slices.ContainsFunc(met,
					func(m segment) bool { return m.matches(name) }); got != both {
					t.Fatalf("%q: %s ∧ %s = %v says %v", name, s, u, met, got)
				}
				if matched[i][k] && !matched[j][k] {
					subset = false
				}
			}
			if got := s.below(u); got != subset {
				t.Fatalf("%s ≤ %s is %v, and of the short names %v", s, u, got, subset)
			}
			for _, m := range met {
				if !m.below(s) || !m.below(u) {
					t.Fatalf("%s ∧ %s has %s, which does not lie below both", s, u, m)
				}
			}
		}
	}
}

func TestSegmentStrings(t *testing.T) {
	for _, text := range []string{"", "a", "*", "a*", "*a", "a*b"} {
		if got := parseSegment(text).String(); got != text {
			t.Errorf("%q is written as %q", text, got)
		}
	}
	if parseSegment("*") != free || parseSegment("a*") == free {
		t.Error("the free segment is not the star alone")
	}
}

func TestNormalList(t *testing.T) {
	g := MustGlobs
	for _, tt := range []struct{ in, want Globs }{
		{nil, nil},
		{g("a"), g("a")},
		{g("b", "a"), g("a", "b")},
		{g("a", "a"), g("a")},
		{g("a", "*"), g("*")},
		{g("a/b", "a/*", "**", "c"), g("**")},
		{g("a/b", "a/*", "c"), g("a/*", "c")},
		{Globs{{}}, nil},
		{append(g("a"), Glob{}), g("a")},
	} {
		if got := tt.in.Normal(); got.String() != tt.want.String() || len(got) != len(tt.want) {
			t.Errorf("normal form of %v is %s, want %s", tt.in.Strings(), got, tt.want)
		}
	}
	in := g("b", "a")
	in.Normal()
	if in[0].String() != "b" {
		t.Error("the normal form sorts its operand")
	}
}

func TestSets(t *testing.T) {
	if got := unionStrings([]string{"b", "a"}, []string{"a", "c"}); !slices.Equal(got,
		[]string{"a", "b", "c"}) {
		t.Errorf("union is %q", got)
	}
	if unionStrings(nil, []string{}) != nil {
		t.Error("the union of nothing is not nil")
	}
	for _, tt := range []struct {
		a, b []string
		want bool
	}{
		{nil, nil, true}, {nil, []string{"a"}, true}, {[]string{"a"}, nil, false},
		{[]string{"a"}, []string{"b", "a"}, true}, {[]string{"a", "c"}, []string{"b", "a"}, false},
	} {
		if got := subsetStrings(tt.a, tt.b); got != tt.want {
			t.Errorf("%q ⊆ %q is %v", tt.a, tt.b, got)
		}
	}
}

func TestBeneath(t *testing.T) {
	for _, tt := range []struct {
		dir, path, rel string
		ok             bool
	}{
		{"/", "/", "", true}, {"/", "/a", "a", true}, {"/", "/a/b", "a/b", true},
		{"/a", "/a", "", true}, {"/a", "/a/b", "b", true}, {"/a", "/ab", "", false},
		{"/a", "/", "", false}, {"/a/b", "/a", "", false},
		{"", "", "", true}, {"", "/a", "", false}, {"/a", "", "", false},
	} {
		rel, ok := beneath(tt.dir, tt.path)
		if ok != tt.ok || ok && rel != tt.rel {
			t.Errorf("%q beneath %q: %q, %v", tt.path, tt.dir, rel, ok)
		}
		if ok && paths.Join(tt.dir, rel) != tt.path {
			t.Errorf("%q and %q join to %q", tt.dir, rel, paths.Join(tt.dir, rel))
		}
	}
}

func TestFoldName(t *testing.T) {
	for in, want := range map[string]string{
		"abc": "abc", "ABC": "abc", "aBc": "abc", ".GIT": ".git", "git~1": ".git", "GIT~1": ".git",
		"git~10": "git~10",
		".git.":  ".git", ".git ": ".git", ".git . .": ".git", ".git::$DATA": ".git", "a:b": "a",
		"！～": "!~", "｟": "｟", "\u212a": "k", "\u017f": "s", "ＡＢＣ": "abc", "．ｇｉｔ": ".git",
		"a\u200bb": "ab", "a\u200db": "ab", "a\u00adb": "ab", "a\ufe0fb": "ab", "a\ufeffb": "ab",
		"\u202eab": "ab", "a\u2060b": "ab", "a\u180bb": "ab",
		"É": "é", "Σ": "σ", "ς": "σ", "a\xffB": "a\xffb", "\xff": "\xff", "...": "...", " ": " ",
		"**": "**",
	} {
		if got := FoldName(in); got != want {
			t.Errorf("%q folds to %q, want %q", in, got, want)
		}
		if again := FoldName(FoldName(in)); again != FoldName(in) {
			t.Errorf("%q folds twice to %q", in, again)
		}
	}
}
