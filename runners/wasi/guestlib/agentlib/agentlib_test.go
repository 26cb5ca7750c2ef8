package agentlib

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/runners/wasi/guestlib/agentlib/go/jailagent"
)

// The helpers of the Python library do what they say, with a store in memory and in a database.
func TestPythonHelpers(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no Python here")
	}
	for _, name := range []string{"more", "data"} {
		out, err := exec.Command("python3", "-B",
			"python/test_jail_agent_"+name+".py").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "OK") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// answers are those of a gate, in memory.
type answers map[string]bool

func (a answers) Value() (map[string]bool, error) { return a, nil }

func (a answers) Set(all map[string]bool) error {
	clear(a)
	maps.Copy(a, all)
	return nil
}

// The gate of the Go library does what that of the Python library does.
func TestApprovalGate(t *testing.T) {
	g := jailagent.ApprovalGate{Answers: answers{}, Rules: []jailagent.ToolRule{
		{Pattern: "read*", Mode: jailagent.Allow}, {Pattern: "rm", Mode: jailagent.Deny},
		{Pattern: "odd", Mode: "maybe"}}}
	check := func(tool, conversation, want string) {
		t.Helper()
		if got, err := g.Check(tool, conversation); err != nil || got != want {
			t.Errorf("%s in %s: %s, %v, want %s", tool, conversation, got, err, want)
		}
	}
	check("read_file", "", jailagent.Allow)
	check("rm", "", jailagent.Deny)
	check("odd", "", jailagent.Deny)
	check("write", "a", jailagent.AskOnce)
	if err := errors.Join(g.Answer("write", "a", true), g.Answer("send", "a", false),
		g.Answer("rm", "", true), g.Answer("a", "write b", true)); err != nil {
		t.Fatal(err)
	}
	check("write", "a", jailagent.Allow)
	check("send", "a", jailagent.Deny)
	check("write", "b", jailagent.AskOnce)
	check("b a", "write", jailagent.AskOnce)
	// A rule comes first.
	check("rm", "", jailagent.Deny)
	if err := g.Revoke("write", "a"); err != nil {
		t.Fatal(err)
	}
	check("write", "a", jailagent.AskOnce)
	if err := g.Reset("a"); err != nil {
		t.Fatal(err)
	}
	check("send", "a", jailagent.AskOnce)
	check("a", "write b", jailagent.Allow)
}

// The ticks of all languages tell the model the same, and keep its answers by the same statements.
func TestTicksAreEqual(t *testing.T) {
	// plain is a text without what the languages put around its lines.
	plain := func(name string) string {
		text, err := files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		bare := strings.NewReplacer(`\n"`, "", `\`, "", `"`, "").Replace(string(text))
		return strings.Join(strings.Fields(bare), " ")
	}
	source, err := files.ReadFile("go/jailagent/tick.go")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(source), "`")
	if len(parts) != 9 {
		t.Fatalf("tick.go has %d parts", len(parts))
	}
	for n, name := range []string{"js/jail_agent.js", "rust/jail_agent.rs", "c/jail_agent.c",
		"python/jail_agent_more.py"} {
		text := plain(name)
		for i := 1; i < len(parts); i += 2 {
			want := strings.Join(strings.Fields(strings.ReplaceAll(parts[i], `"`, "")), " ")
			// Python has the text for the model alone.
			if (n < 3 || i == 1) && !strings.Contains(text, want) {
				t.Errorf("%s has not %.60s…", name, want)
			}
		}
	}
}

// Every library and program is a part of some language's agent, so that none is forgotten.
func TestFiles(t *testing.T) {
	used := map[string]bool{}
	for _, l := range Languages() {
		names, err := filesOf(l.Name)
		if err != nil {
			t.Fatal(err)
		}
		for _, from := range names {
			used[from] = true
		}
		files, err := New(l.Name, "some-name")
		if err != nil {
			t.Fatal(err)
		}
		if text := string(files["agent.toml"]); !strings.Contains(text, `name = "some-name"`) ||
			strings.Contains(text, "NAME") || strings.Contains(string(files["Makefile"]), "NAME.") {
			t.Errorf("%s: %s\n%s", l.Name, text, files["Makefile"])
		}
	}
	for _, pattern := range []string{"*/*", "go/jailagent/*"} {
		found, _ := filepath.Glob(pattern)
		for _, name := range found {
			info, err := os.Stat(name)
			if err == nil && !info.IsDir() && !used[name] && !strings.Contains(name, "/test_") {
				t.Errorf("%s is in no agent", name)
			}
		}
	}
	if _, err := New("perl", "x"); err == nil {
		t.Error("perl is a language")
	}
}
