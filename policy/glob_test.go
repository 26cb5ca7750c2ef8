package policy_test

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/policytest"
)

func TestGlobIsLiteral(t *testing.T) {
	for text, want := range map[string]bool{"a/b": true, "/a": true, "a*": false, "*": false,
		"**": false, "a/**": false, "**/a": false} {
		if got := policy.MustGlob(text).Literal(); got != want {
			t.Errorf("%q is literal: %v", text, got)
		}
	}
	if (policy.Glob{}).Literal() || (policy.Glob{}).Match("") || (policy.Glob{}).Match("a") {
		t.Error("the zero glob stands for a name")
	}
	defer func() {
		if recover() == nil {
			t.Error("MustGlob takes what is no glob")
		}
	}()
	policy.MustGlob("a[")
}

func TestGlobMatch(t *testing.T) {
	for _, tt := range []struct {
		glob string
		yes  []string
		no   []string
	}{
		{"core-utils/*", []string{"core-utils/grep", "core-utils/"},
			[]string{"core-utils", "core-utils/a/b", "Core-Utils/grep", "xcore-utils/grep"}},
		{"**", []string{"a", "a/b", "/a/b", ""}, nil},
		{"**/*.wasm", []string{"a.wasm", "/opt/x/a.wasm", "/.wasm"},
			[]string{"a.wasm/b", "a.WASM"}},
		{"/opt/**", []string{"/opt", "/opt/a", "/opt/a/b"},
			[]string{"opt", "/optical", "/usr/opt"}},
		{"/opt/**/bin/*", []string{"/opt/bin/a", "/opt/x/y/bin/a"}, []string{"/opt/bin", "/bin/a"}},
		{"/simple/", []string{"/simple/"}, []string{"/simple"}},
		{"lib*.so", []string{"lib.so", "libc.so"}, []string{"li.so", "libc.so.6"}},
		{"a*a", []string{"aa", "aba"}, []string{"a", "ab"}},
	} {
		g := policy.MustGlob(tt.glob)
		for _, name := range tt.yes {
			if !g.Match(name) {
				t.Errorf("%q does not match %q", tt.glob, name)
			}
		}
		for _, name := range tt.no {
			if g.Match(name) {
				t.Errorf("%q matches %q", tt.glob, name)
			}
		}
	}
	if (policy.Glob{}).Match("") || (policy.Glob{}).String() != "∅" {
		t.Error("the zero glob matches something")
	}
}

func TestGlobCanonical(t *testing.T) {
	for _, tt := range [][2]string{
		{"a/**/*", "a/*/**"}, {"*/**", "**"}, {"**/*", "**"}, {"**/*/*", "*/*/**"},
		{"*/*/**/*", "*/*/*/**"},
		{"*/a/**/*/b", "*/a/*/**/b"}, {"/**", "/**"}, {"**/a", "**/a"},
	} {
		if got := policy.MustGlob(tt[0]).String(); got != tt[1] {
			t.Errorf("%q in normal form is %q, want %q", tt[0], got, tt[1])
		}
		if a, b := policy.MustGlobs(tt[0]), policy.MustGlobs(tt[1]); !a.LessEq(b) || !b.LessEq(a) {
			t.Errorf("%q and %q are not equal", tt[0], tt[1])
		}
	}
}

func TestGlobErrors(t *testing.T) {
	for glob, why := range map[string]string{
		"":                             "is empty",
		"a/**/b/**":                    "more than one **",
		"a**":                          "more than one *",
		"*a*":                          "more than one *",
		"a//b":                         "empty segment",
		"a/../b":                       `".."`,
		"./a":                          `"."`,
		"a?":                           "no meaning",
		"[ab]":                         "no meaning",
		"{a,b}":                        "no meaning",
		`a\*`:                          "no meaning",
		"a\x00":                        "control",
		"a\nb":                         "control",
		"\xff":                         "not UTF-8",
		strings.Repeat("a", 5000):      "longer",
		strings.Repeat("a/", 70) + "a": "segments",
		"a*/b*/c*":                     "too complex",
		strings.Repeat("a", 80) + "*":  "too complex",
	} {
		_, err := policy.ParseGlob(glob)
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("ParseGlob(%.20q) = %v, want an error with %q", glob, err, why)
		}
		var g policy.Glob
		if g.UnmarshalText([]byte(glob)) == nil {
			t.Errorf("UnmarshalText lets %.20q through", glob)
		}
	}
}

// reference is a second judge, which shares no code with Glob.
func reference(glob string) *regexp.Regexp {
	var b strings.Builder
	parts := strings.Split(glob, "/")
	b.WriteString("^")
	for i, part := range parts {
		if part == "**" {
			switch {
			case len(parts) == 1:
				b.WriteString(".*")
			case i == 0:
				b.WriteString("(?:[^/]*/)*")
			case i == len(parts)-1:
				b.WriteString("(?:/[^/]*)*")
			default:
				b.WriteString("(?:/[^/]*)*/")
			}
			continue
		}
		if i > 0 && parts[i-1] != "**" {
			b.WriteString("/")
		}
		b.WriteString(strings.ReplaceAll(regexp.QuoteMeta(part), `\*`, "[^/]*"))
	}
	b.WriteString("$")
	return regexp.MustCompile(b.String())
}

func TestGlobAgainstReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, name := policytest.Glob().Draw(t, "glob"), policytest.Path().Draw(t, "name")
		if want := reference(g.String()).MatchString(name); g.Match(name) != want {
			t.Fatalf("%q.Match(%q) = %v, a regular expression says %v", g, name, !want, want)
		}
	})
}

// TestGlobsMeetIsExact asks about names: the meet must have those of both, and no other.
func TestGlobsMeetIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := policytest.Globs().Draw(t, "a"), policytest.Globs().Draw(t, "b")
		m := a.Meet(b)
		for range 20 {
			name := policytest.Path().Draw(t, "name")
			if got, want := m.Match(name), a.Match(name) && b.Match(name); got != want {
				t.Fatalf("%q: %s ∧ %s = %s says %v, want %v", name, a, b, m, got, want)
			}
			if a.LessEq(b) && a.Match(name) && !b.Match(name) {
				t.Fatalf("%q: %s ≤ %s, and yet", name, a, b)
			}
			if a.Match(name) != a.Normal().Match(name) {
				t.Fatalf("%q: the normal form of %s differs", name, a)
			}
		}
	})
}

// TestGlobsMeetIsBounded shows that lists made to explode grant nothing, at once.
func TestGlobsMeetIsBounded(t *testing.T) {
	var a, b policy.Globs
	for i := range 200 {
		s := strings.Repeat("a", i%60)
		a = append(a, policy.MustGlob(s+"b*/x"+s+"*/**"))
		b = append(b, policy.MustGlob("*b"+s+"/*"+s+"y/**/z"+s))
	}
	m := a.Meet(b)
	if len(m) != 0 {
		t.Errorf("a meet of %d by %d patterns has %d, want none", len(a), len(b), len(m))
	}
	if !m.LessEq(a) || !m.LessEq(b) {
		t.Error("and does not lie below both")
	}
}

func FuzzGlob(f *testing.F) {
	for _, s := range []string{"**", "a/*/b", "*.wasm", "/opt/**/bin", "a**", "\x00", "a*a/**/*b"} {
		f.Add(s, "a/b/c", "**/*")
	}
	f.Fuzz(func(t *testing.T, text, name, other string) {
		g, err := policy.ParseGlob(text)
		if err != nil {
			return
		}
		again, err := policy.ParseGlob(g.String())
		if err != nil || again.String() != g.String() {
			t.Fatalf("%q is written as %q, which reads as %q, %v", text, g, again, err)
		}
		if g.Literal() && !g.Match(text) {
			t.Fatalf("%q does not match itself", text)
		}
		h, err := policy.ParseGlob(other)
		if err != nil {
			return
		}
		a, b := policy.Globs{g}, policy.Globs{h}
		m := a.Meet(b)
		if !m.LessEq(a) || !m.LessEq(b) {
			t.Fatalf("%s ∧ %s = %s does not lie below both", g, h, m)
		}
		if len(m) > 0 && m.Match(name) != (g.Match(name) && h.Match(name)) {
			t.Fatalf("%s ∧ %s = %s is wrong about %q", g, h, m, name)
		}
	})
}
