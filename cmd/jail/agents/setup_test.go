package agents_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

var names = []string{"claude-code", "codex", "cursor", "gemini", "openhands"}

// home is a host on which setup finds a home directory of its own.
func home(t *testing.T) (*cmdtest.Host, string) {
	h := cmdtest.New(t)
	dir := filepath.Join(h.Root, "home")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	h.Env = append(h.Env, "HOME="+dir, "XDG_STATE_HOME=", "CODEX_HOME=", "CLAUDE_CONFIG_DIR=")
	return h, dir
}

// files returns the files below a directory by their path.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		if !strings.HasPrefix(rel, ".local/") {
			all[rel] = string(text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestSetupPages: the page of each client has the text that setup writes, for a project and for a
// user; a second time writes nothing, and --undo leaves nothing.
func TestSetupPages(t *testing.T) {
	h, dir := home(t)
	for _, client := range names {
		page, err := os.ReadFile(cmdtest.Tree("docs/agents", client+".md"))
		if err != nil {
			t.Fatal(err)
		}
		for scope, root := range map[string]string{"--project": h.Work, "--user": dir} {
			if client == "openhands" && scope == "--project" {
				h.Wants(h.Jail("setup", scope, client), 2, "no configuration of a project")
				continue
			}
			h.Wants(h.Jail("setup", scope, client), 2, "no terminal")
			h.Wants(h.Jail("setup", scope, "--json", client), 0, "")
			if got := files(t, root); len(got) != 0 {
				t.Errorf("%s %s: written without --yes: %v", client, scope, got)
			}
			h.Wants(h.Jail("setup", scope, "--yes", client), 0, "")
			got := files(t, root)
			if len(got) == 0 {
				t.Errorf("%s %s: nothing is written", client, scope)
			}
			for name, text := range got {
				if scope == "--project" || client == "openhands" {
					if !strings.Contains(string(page), "`"+name+"`") ||
						!strings.Contains(string(page), "\n"+text+"```\n") {
						t.Errorf("docs/agents/%s.md has another %s: %s", client, name, text)
					}
				} else if !strings.Contains(string(page), "`~/"+name+"`") {
					t.Errorf("docs/agents/%s.md does not name ~/%s", client, name)
				}
			}
			if o := h.Jail("setup", scope, "--yes", client); o.Out != "nothing to do\n" {
				t.Errorf("%s %s a second time: %+v", client, scope, o)
			}
			h.Wants(h.Jail("setup", scope, "--undo", "--yes", client), 0, "")
			if got := files(t, root); len(got) != 0 {
				t.Errorf("%s %s: left by --undo: %v", client, scope, got)
			}
		}
	}
	h.Wants(h.Jail("setup", "emacs"), 2, "no client")
	h.Wants(h.Jail("setup", "--user", "--project", "codex"), 2, "contradict")
}

// TestSetupNeeds: setup names what tools of the project need beside the profile build, where the
// project gets that profile.
func TestSetupNeeds(t *testing.T) {
	h, _ := home(t)
	// The profile build has memory of its own at /tmp.
	dir, err := os.MkdirTemp("/var/tmp", "jail-setup-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	bin := filepath.Join(dir, "sdk/bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	h.Env = append(h.Env, "HOME="+dir, "PATH="+bin+":/usr/bin:/bin", "PYENV_ROOT=", "RUSTUP_HOME=",
		"GOROOT=", "JAVA_HOME=", "VIRTUAL_ENV=", "CARGO_HOME=")
	const tells = "jail profile new --from-here"
	want := "read+exec " + bin + " (programs on your PATH)"
	var r struct{ Needs []string }
	o := h.Jail("setup", "--json", "claude-code")
	if err := json.Unmarshal([]byte(o.Out), &r); err != nil || len(r.Needs) != 1 || r.Needs[0] != want {
		t.Errorf("%v: %+v", err, o)
	}
	for _, c := range []struct {
		flags []string
		tells bool
	}{{nil, true}, {[]string{"--undo"}, false}, {[]string{"--profile", "worker"}, false},
		{[]string{"--user"}, false}} {
		o := h.Jail(append(append([]string{"setup", "--yes"}, c.flags...), "claude-code")...)
		if h.Wants(o, 0, ""); strings.Contains(o.Out, want) != c.tells ||
			strings.Contains(o.Out, tells) != c.tells {
			t.Errorf("setup %q: %+v", c.flags, o)
		}
	}
	// A home is no project, and can be set up all the same.
	cmd := h.Command("setup", "--yes", "codex")
	cmd.Dir = dir
	if o := h.Run(cmd); o.Code != 0 || strings.Contains(o.Out, tells) {
		t.Errorf("in the home directory: %+v", o)
	}
}

// TestSetupKeeps: what a person has in the files stays, comments and layout included, and comes back
// where it was replaced; also if it changed in between.
func TestSetupKeeps(t *testing.T) {
	h, _ := home(t)
	had := map[string]string{
		".claude/settings.json": "{\n    // mine\n    \"permissions\": {\n        \"deny\": [\n            \"Bash\", // no shell\n            \"WebFetch\"\n        ],\n    },\n    \"model\": \"x\" /* end */\n}\n",
		".mcp.json":             "{\"mcpServers\":{\"other\":{\"command\":\"x\"},\"jail\":{\"command\":\"old\"}}}",
		".codex/config.toml":    "# mine\nmodel = \"x\" # why\nsandbox_mode = \"workspace-write\"\n\n[features]\n# more\nother = true\n\n[mcp_servers.other]\ncommand = \"y\"\n",
		".gemini/settings.json": "{}",
	}
	h.Write(had)
	for _, client := range names[:4] {
		h.Wants(h.Jail("setup", "--yes", client), 0, "")
	}
	h.Holds(".claude/settings.json", "// mine", "// no shell", "/* end */", "\"mcp__jail\"",
		"    \"model\": \"x\"", "            \"Write\"")
	h.Holds(".mcp.json", `"other":{"command":"x"}`)
	h.Holds(".codex/config.toml", "# mine\nmodel = \"x\" # why\nsandbox_mode = \"read-only\"\n",
		"shell_tool = false\n# more\nother = true\n")
	// Another profile replaces the entries, and adds none.
	h.Wants(h.Jail("setup", "--yes", "--profile", "worker", "claude-code"), 0, "")
	now := files(t, h.Work)
	if s := now[".claude/settings.json"]; strings.Count(s, "jail hook") != 1 ||
		!strings.Contains(s, "--profile worker") || !strings.Contains(now[".mcp.json"], "worker") {
		t.Errorf("%s%s", s, now[".mcp.json"])
	}
	// The client and its person write, too.
	h.Write(map[string]string{
		".codex/config.toml":    now[".codex/config.toml"] + "\n[projects.\"/x\"]\ntrust_level = \"trusted\"\n",
		".gemini/settings.json": strings.Replace(now[".gemini/settings.json"], "\n}", ",\n  \"ui\": 1\n}", 1)})
	for _, client := range names[:4] {
		h.Wants(h.Jail("setup", "--yes", "--undo", client), 0, "")
	}
	now = files(t, h.Work)
	for name, want := range map[string]string{".claude/settings.json": had[".claude/settings.json"],
		".codex/config.toml": had[".codex/config.toml"] +
			"\n[projects.\"/x\"]\ntrust_level = \"trusted\"\n"} {
		if now[name] != want {
			t.Errorf("%s: %s", name, now[name])
		}
	}
	var servers map[string]map[string]map[string]string
	if err := json.Unmarshal([]byte(now[".mcp.json"]), &servers); err != nil ||
		servers["mcpServers"]["jail"]["command"] != "old" || len(servers["mcpServers"]) != 2 {
		t.Errorf("%v: %s", err, now[".mcp.json"])
	}
	var gemini map[string]int
	if err := json.Unmarshal([]byte(now[".gemini/settings.json"]), &gemini); err != nil || gemini["ui"] != 1 ||
		len(gemini) != 1 || len(now) != 4 {
		t.Errorf("%v: %v", err, now)
	}
}

// TestSetupRefuses: a link, another user's file, and a file that is not understood stay as they are,
// and so does the rest.
func TestSetupRefuses(t *testing.T) {
	h, _ := home(t)
	at := func(name string) string { return filepath.Join(h.Work, name) }
	outside := filepath.Join(h.Root, "outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		make func() error
		want string
	}{
		"a link": {func() error { return os.Symlink(filepath.Join(outside, "f"), at(".mcp.json")) },
			"symbolic link"},
		"a linked directory": {func() error { return os.Symlink(outside, at(".claude")) },
			"symbolic link"},
		"another user's file": {func() error {
			return errors.Join(os.WriteFile(at(".mcp.json"), []byte("{}"), 0o666),
				os.Chown(at(".mcp.json"), cmdtest.Stranger, -1))
		}, "another user"},
		"another user's directory": {func() error {
			return errors.Join(os.Mkdir(at(".claude"), 0o777),
				os.Chown(at(".claude"), cmdtest.Stranger, -1))
		}, "another user"},
		"a directory": {func() error { return os.Mkdir(at(".mcp.json"), 0o755) }, "no regular file"},
		"no JSON":     {func() error { return os.WriteFile(at(".mcp.json"), []byte("{,"), 0o644) }, "by hand"},
		"a list":      {func() error { return os.WriteFile(at(".mcp.json"), []byte("[]"), 0o644) }, "no object"},
		"a name twice": {func() error {
			return os.WriteFile(at(".mcp.json"), []byte(`{"mcpServers":{},"mcp\u0053ervers":{}}`), 0o644)
		}, "twice"},
		"another kind": {func() error {
			return os.WriteFile(at(".mcp.json"), []byte(`{"mcpServers":[]}`), 0o644)
		}, "no object"},
	} {
		if err := c.make(); err != nil {
			t.Fatal(err)
		}
		before := files(t, outside)
		h.Wants(h.Jail("setup", "--yes", "claude-code"), 2, c.want)
		if after := files(t, outside); len(after) != len(before) {
			t.Errorf("%s: written outside: %v", name, after)
		}
		if _, err := os.Stat(at(".claude/settings.json")); err == nil {
			t.Errorf("%s: the other file is written", name)
		}
		for _, left := range []string{".mcp.json", ".claude"} {
			if err := os.RemoveAll(at(left)); err != nil {
				t.Fatal(err)
			}
		}
	}
	h.Write(map[string]string{".cursor/hooks.json": `{"version": 2}`})
	h.Wants(h.Jail("setup", "--yes", "cursor"), 2, "by hand|version")
	h.Holds(".cursor/hooks.json", `{"version": 2}`)
	h.Write(map[string]string{".codex/config.toml": "features = {}\n"})
	h.Wants(h.Jail("setup", "--yes", "codex"), 2, "by hand|person")
}

// TestSetupDirectory: the files of a user are where the client's variable says, the servers included.
func TestSetupDirectory(t *testing.T) {
	h, dir := home(t)
	other := filepath.Join(h.Root, "other")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	h.Env = append(h.Env, "CLAUDE_CONFIG_DIR="+other, "CODEX_HOME="+other)
	h.Wants(h.Jail("setup", "--yes", "--user", "claude-code"), 0, "")
	h.Wants(h.Jail("setup", "--yes", "--user", "codex"), 0, "")
	got := files(t, other)
	for _, name := range []string{".claude.json", "settings.json", "config.toml", "hooks.json"} {
		if got[name] == "" {
			t.Errorf("no %s", name)
		}
	}
	if left := files(t, dir); len(left) != 0 || len(got) != 4 {
		t.Errorf("%v, and %v in the home directory", got, left)
	}
	h.Wants(h.Jail("setup", "--yes", "--user", "--undo", "claude-code"), 0, "")
	h.Wants(h.Jail("setup", "--yes", "--user", "--undo", "codex"), 0, "")
	if left := files(t, other); len(left) != 0 {
		t.Errorf("left by --undo: %v", left)
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
}

// TestSetupHooks: hooks that name jail hook and are a person's own stay, and one of jail's form that
// setup replaces comes back.
func TestSetupHooks(t *testing.T) {
	h, _ := home(t)
	own := []string{
		`{"matcher":"Bash","hooks":[{"type":"command","command":"mine"},{"type":"command","command":"jail hook claude-code || exit 2"}]}`,
		`{"matcher":"Bash","hooks":[{"type":"command","command":"mine; jail hook claude-code || exit 2"}]}`,
		`{"matcher":"Bash","hooks":[{"type":"command","command":"echo jail hook claude-code"}]}`,
	}
	old := `{"matcher":"Bash","hooks":[{"type":"command","command":"jail hook claude-code || exit 2"}]}`
	had := `{"hooks":{"PreToolUse":[` + strings.Join(own, ",") + "," + old + `]}}`
	h.Write(map[string]string{".claude/settings.json": had})
	hooks := func() (all []any) {
		var v struct{ Hooks map[string][]any }
		if err := json.Unmarshal([]byte(files(t, h.Work)[".claude/settings.json"]), &v); err != nil {
			t.Fatal(err)
		}
		return v.Hooks["PreToolUse"]
	}
	before := text(t, hooks())
	h.Wants(h.Jail("setup", "--yes", "claude-code"), 0, "")
	if got := hooks(); len(got) != 4 || !strings.HasPrefix(before, strings.TrimSuffix(text(t, got[:3]), "]")) ||
		!strings.Contains(text(t, got[3]), "the hook of jail failed") {
		t.Errorf("%s", text(t, got))
	}
	h.Wants(h.Jail("setup", "--yes", "--profile", "worker", "claude-code"), 0, "")
	if got := hooks(); len(got) != 4 || !strings.Contains(text(t, got[3]), "--profile worker") {
		t.Errorf("%s", text(t, got))
	}
	h.Wants(h.Jail("setup", "--yes", "--undo", "claude-code"), 0, "")
	if got := text(t, hooks()); got != before {
		t.Errorf("after --undo: %s", got)
	}
	if _, err := os.Stat(filepath.Join(h.Work, ".claude")); err != nil {
		t.Error(err)
	}
}

// TestSetupUndo: --undo puts back what a person set last, forgets what it has done, and leaves an
// empty directory that was there.
func TestSetupUndo(t *testing.T) {
	h, _ := home(t)
	h.Write(map[string]string{".codex/config.toml": "sandbox_mode = \"workspace-write\"\n",
		".mcp.json": `{"mcpServers":{"jail":{"command":"first"}}}`})
	both := func(flags ...string) {
		t.Helper()
		for _, client := range []string{"codex", "claude-code"} {
			h.Wants(h.Jail(append(append([]string{"setup", "--yes"}, flags...), client)...), 0, "")
		}
	}
	both()
	now := files(t, h.Work)
	h.Write(map[string]string{
		".codex/config.toml": strings.Replace(now[".codex/config.toml"], "read-only", "mine", 1),
		".mcp.json":          `{"mcpServers":{"jail":{"command":"second"}}}`})
	both()
	both("--undo")
	h.Holds(".codex/config.toml", "sandbox_mode = \"mine\"\n")
	h.Holds(".mcp.json", `"second"`)
	// What an undo without anything to do leaves behind would be undone later.
	both()
	h.Write(map[string]string{".mcp.json": "{}"})
	both("--undo")
	h.Write(map[string]string{".mcp.json": `{"mcpServers":{"jail":{"type":"stdio","command":"jail","args":["mcp"]}}}`})
	before := files(t, h.Work)[".mcp.json"]
	both("--undo")
	if got := files(t, h.Work)[".mcp.json"]; got != before {
		t.Errorf("a second --undo: %s", got)
	}
	if err := os.Mkdir(filepath.Join(h.Work, ".gemini"), 0o755); err != nil {
		t.Fatal(err)
	}
	h.Wants(h.Jail("setup", "--yes", "gemini"), 0, "")
	h.Wants(h.Jail("setup", "--yes", "--undo", "gemini"), 0, "")
	if _, err := os.Stat(filepath.Join(h.Work, ".gemini")); err != nil {
		t.Error(err)
	}
}
