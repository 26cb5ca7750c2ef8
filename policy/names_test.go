package policy_test

import (
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/policy"
)

func TestHidden(t *testing.T) {
	for _, tt := range []struct {
		pattern string
		yes, no []string
	}{
		{".env", []string{".env", "a/.env", "a/b/.env", ".env/x", "a/.env/b/c"},
			[]string{".envrc", "a.env", ".ENV", "env"}},
		{"*.pem", []string{"a.pem", "x/y/a.pem", "a.pem/inside"}, []string{"a.pem.txt", "pem"}},
		{"**/*.pem", []string{"a.pem", "x/y/a.pem"}, []string{"a.txt"}},
		{"build/out", []string{"build/out", "build/out/x"},
			[]string{"a/build/out", "build", "build/output"}},
		{"/build", []string{"build", "build/x"}, []string{"a/build"}},
		{"secrets/**", []string{"secrets", "secrets/a", "secrets/a/b"}, []string{"a/secrets"}},
		{"**/secrets/**", []string{"secrets", "a/secrets/b"}, []string{"secret"}},
		{"a/**/b/**/c", []string{"a/b/c", "a/x/b/y/z/c/d"}, []string{"a/c/b", "a/b"}},
		{"**", []string{"a", "a/b"}, nil},
	} {
		n := policy.Hidden([]string{tt.pattern})
		for _, path := range tt.yes {
			if !n.Match(path) || !n.CouldContain(path) {
				t.Errorf("%q does not hide %q", tt.pattern, path)
			}
		}
		for _, path := range tt.no {
			if n.Match(path) {
				t.Errorf("%q hides %q", tt.pattern, path)
			}
		}
	}
	none := policy.Hidden(nil)
	if none.Match(".env") || none.Match("a/../b") || none.CouldContain(".") {
		t.Error("no pattern hides something")
	}
}

func TestHiddenUncleanPaths(t *testing.T) {
	n := policy.Hidden([]string{"secret"})
	for _, path := range []string{"", ".", "..", "a/..", "../secret", "a//b", "/a", "a/", "./a",
		"a\x00b"} {
		if !n.Match(path) {
			t.Errorf("%q is not clean, and is not hidden", path)
		}
	}
	// What cannot be read hides everything.
	for _, bad := range []string{"", "a//b", "../a", "[a]", "!a", "a/", "/", "a*b*c",
		strings.Repeat("a/", 100) + "a"} {
		if policy.CheckNames([]string{"ok", bad}) == nil {
			t.Errorf("pattern %q is let through", bad)
		}
		if !policy.Hidden([]string{bad}).Match("anything") {
			t.Errorf("pattern %q shows something", bad)
		}
	}
}

func TestCouldContain(t *testing.T) {
	for _, tt := range []struct {
		pattern, dir string
		want         bool
	}{
		{".env", ".", true}, {".env", "a/b", true},
		{"build/out", ".", true}, {"build/out", "build", true}, {"build/out", "src", false},
		{"build/out", "build/out/x", true}, {"build/out", "build/in", false},
		{"a/*/c", "a/b", true}, {"a/*/c", "a/b/d", false}, {"a/**/c", "a/x/y", true},
		{"a/**/c", "b", false},
		{"a", "../x", true},
	} {
		if got := policy.Hidden([]string{tt.pattern}).CouldContain(tt.dir); got != tt.want {
			t.Errorf("%q could be below %q: %v", tt.pattern, tt.dir, got)
		}
	}
}

// T-082, T-311, T-340 to T-343, T-346.
func TestProtected(t *testing.T) {
	for _, path := range []string{
		".git/hooks/pre-commit", ".git/config", "sub/.git/config", ".git", ".git/modules/x/config",
		".git/worktrees/w/config.worktree",
		".GIT/hooks/x", ".Git/CONFIG", ".g\u200cit/config", ".git\u200b/config", ".ｇｉｔ/config",
		"git~1/config", "GIT~1/hooks/x",
		".git./config", ".git /config", ".git::$INDEX_ALLOCATION/config", ".git\ufeff/config",
		".gi\u00adt/hooks", ".git/hooKs/x", ".git/hoo\u212As/x",
		".gitmodules", ".gitmodule\u017f", "a/.gitattributes", ".vscode/tasks.json", ".idea/x",
		"x.code-workspace", ".devcontainer/devcontainer.json",
		".claude/settings.json", ".mcp.json", ".cursor/mcp.json", "AGENTS.md", "agents.MD",
		"CLAUDE.md", ".codex/config.toml",
		".envrc", ".bashrc", ".profile", ".zshenv", ".pam_environment", ".tool-versions",
		".ssh/authorized_keys", "a.desktop", ".jail.toml",
	} {
		risk, held := policy.Protected(path)
		if !held {
			t.Errorf("%q is not held back", path)
		}
		if held && (risk.Pattern == "" || risk.Reason == "") {
			t.Errorf("%q is held back without a reason", path)
		}
	}
	for _, path := range []string{"main.go", "git/config", ".github/README", "config", "hooks/x",
		"Makefile", ".gitignore", ".git/index", ".git/objects/ab/cd", "desktop", "a.git", "git~2"} {
		if risk, held := policy.Protected(path); held {
			t.Errorf("%q is held back: %s %s", path, risk.Pattern, risk.Reason)
		}
	}
	for _, path := range []string{"", "../x", "a\x00"} {
		if _, held := policy.Protected(path); !held {
			t.Errorf("%q is no clean name, and is not held back", path)
		}
	}
	for _, path := range []string{"Makefile", "makefile", "package.json", "sub/go.mod",
		".github/workflows/ci.yml", "lib.so"} {
		if _, flagged := policy.Flagged(path); !flagged {
			t.Errorf("%q is not flagged", path)
		}
	}
	if _, flagged := policy.Flagged("main.go"); flagged {
		t.Error("main.go is flagged")
	}
}

// Each line of the list has a reason, parses, and holds its own name.
func TestProtectedList(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range policy.ProtectedRisks() {
		if err := policy.CheckNames([]string{r.Pattern}); err != nil || r.Reason == "" ||
			seen[r.Pattern] {
			t.Errorf("%q: %v, reason %q, twice %v", r.Pattern, err, r.Reason, seen[r.Pattern])
		}
		seen[r.Pattern] = true
		name := strings.NewReplacer("**/", "", "*", "x").Replace(r.Pattern)
		if _, held := policy.Protected("some/dir/" + strings.ToUpper(name)); !held {
			t.Errorf("%q does not hold %q", r.Pattern, name)
		}
	}
}

func TestHeldBack(t *testing.T) {
	w := policy.Workspace{Access: policy.WorkspaceShadow,
		Protect: []string{"Makefile", "deploy/**"}}
	for _, path := range []string{"makefile", "sub/Makefile", "deploy/x", ".git/config"} {
		if r, held := w.HeldBack(path); !held || r.Reason == "" {
			t.Errorf("%q is not held back, or without a reason", path)
		}
	}
	if _, held := w.HeldBack("main.go"); held {
		t.Error("main.go is held back")
	}
}

func FuzzNames(f *testing.F) {
	for _, s := range []string{".env", "**/*.pem", "a/**/b/**", "/x", "!", "git~1", ".g\u200cit"} {
		f.Add(s, "a/b/.env")
	}
	f.Fuzz(func(t *testing.T, pattern, path string) {
		n := policy.Hidden([]string{pattern})
		if n.Match(path) && !n.CouldContain(path) {
			t.Fatalf("%q is hidden by %q, which could not be below it", path, pattern)
		}
		if policy.Hidden([]string{"/no/such/name"}).Match(path) {
			policy.Protected(path)
			// Not a clean path, and so in every set.
			return
		}
		if i := strings.LastIndexByte(path, '/'); i > 0 && n.Match(path) &&
			!n.CouldContain(path[:i]) {
			t.Fatalf("%q is hidden by %q, which could not be below its directory", path, pattern)
		}
		if n.Match(path) && !n.Match(path+"/x") {
			t.Fatalf("%q is hidden by %q, and shows what is in it", path, pattern)
		}
		policy.Protected(path)
	})
}
