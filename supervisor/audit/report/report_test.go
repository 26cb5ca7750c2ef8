package report

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/audit"
)

// hostile is what a tool might put wherever it may put anything.
const hostile = "\x1b[31m</td><script>alert(1)</script>|`x`\n# owned \u202e\x00\xff"

func logged(t *testing.T, entries ...audit.Entry) string {
	t.Helper()
	dir := t.TempDir()
	l, err := audit.Open(audit.Options{Dir: filepath.Join(dir, "log"),
		KeyDir: filepath.Join(dir, "keys")})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		e.Run, e.Session, e.Actor = "r1", "s1", audit.Actor{UID: 7, PID: 8, Exe: "/usr/bin/" +
			hostile}
		if _, err := l.Append(context.Background(), e); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "log")
}

// everything is one record of each type that a run can have, with something hostile in each text.
func everything() []audit.Entry {
	c := audit.Changes{Added: 1, Modified: 2, Deleted: 3}
	files := []string{"added sha256:00 .git/hooks/" + hostile, "modified - Makefile",
		"modified - a"}
	var list []audit.Entry
	for _, e := range []audit.Event{
		audit.RunStarted{Tool: hostile, Digest: "sha256:aa", Argv: []string{"sed", hostile},
			Cwd: hostile, Workspace: hostile, Profile: hostile, Warnings: []string{hostile}},
		audit.Exec{Program: hostile, Digest: "sha256:bb", Argv: []string{hostile}, Count: 3},
		audit.Denied{Layer: "wasi", What: "read /home/u/.ssh/id_rsa" + hostile, Rule: hostile,
			Count: 5},
		audit.Denied{Layer: "seccomp", What: "socket", Rule: "filter"},
		audit.Fetch{Begun: true, Decision: "allowed", Method: "GET", Scheme: "https",
			Host: "a.example", Port: 443, Path: "/" + hostile, Rule: hostile},
		audit.Fetch{Decision: "denied", Method: "POST", Scheme: "https", Host: "evil.example",
			Port: 443, Path: "/", Rule: hostile},
		audit.File{Path: "/workspace/" + hostile, Kind: "open", Program: hostile, Count: 2},
		audit.File{Path: "/workspace/" + hostile, Kind: "open", Program: hostile, Count: 3},
		audit.File{Path: "/workspace/.env", Kind: "open", Program: "/usr/bin/cat", Count: 1},
		audit.File{Path: "/usr/lib/python3/secrets.py", Kind: "open", Program: "/usr/bin/python3",
			Count: 1},
		audit.Limit{Name: "memory", Limit: 1, Peak: 2, Action: "killed"},
		audit.WorkspaceChanged{Workspace: hostile, Digest: "sha256:cc", Changes: c, Files: files},
		audit.RunFinished{ExitCode: 3, Limit: "memory", Usage: audit.Usage{WallMS: 9}},
		audit.WorkspaceCommitted{Workspace: hostile, Digest: "sha256:cc", Changes: c, Begun: true},
		audit.WorkspaceCommitted{Workspace: hostile, Digest: "sha256:cc", Changes: c,
			Held: []string{hostile}, Protected: true},
		audit.WorkspaceReverted{Workspace: hostile, Digest: "sha256:cc", Changes: c,
			Error: hostile},
	} {
		list = append(list, audit.Entry{Event: e, Policy: "sha256:dd"})
	}
	return list
}

func TestReport(t *testing.T) {
	dir := logged(t, everything()...)
	rep, err := Make(audit.Scan(dir, audit.Filter{Session: "s1"}), "s1", true)
	if err != nil {
		t.Fatal(err)
	}
	run := rep.Runs[0]
	if len(rep.Runs) != 1 || len(run.Programs) != 1 || len(run.Fetches) != 2 ||
		len(run.Refused) != 2 || len(run.Decisions) != 2 || run.End == nil ||
		run.End.ExitCode != 3 {
		t.Errorf("%+v", run)
	}
	if run.Argv[1] != hostile || run.Tool != hostile {
		t.Errorf("a text is not what was recorded: %q", run.Argv)
	}
	if f := rep.Findings[0]; !strings.Contains(f.Text,
		"/usr/bin/cat opened what looks like a secret: /workspace/.env") || f.Record != 9 {
		t.Errorf("the first finding is %+v", f)
	}
	if len(run.Touched) != 3 || run.Touched[0].Count != 5 {
		t.Errorf("%+v", run.Touched)
	}
	var grave []string
	for i, f := range rep.Findings {
		if f.Grave {
			grave = append(grave, f.Text)
		}
		if i > 0 && f.Grave && !rep.Findings[i-1].Grave {
			t.Error("a grave finding stands behind one that is not")
		}
	}
	for _, want := range []string{"id_rsa", "seccomp refused socket",
		"fetch refused: POST https://evil.example:443/", ".git/hooks", "by an explicit yes",
		"not reverted"} {
		if !strings.Contains(strings.Join(grave, "\n"), want) {
			t.Errorf("no grave finding says %q: %q", want, grave)
		}
	}
	for _, form := range Forms {
		var b bytes.Buffer
		if err := rep.Write(&b, form, "The log verifies."); err != nil {
			t.Fatal(form, err)
		}
		text := b.String()
		for _, bad := range []string{"\x1b", "\x00", "\u202e", "\xff", "\n# owned"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s: %q is in it as it is", form, bad)
			}
		}
		if form == html && strings.Contains(text, "<script") {
			t.Errorf("a script is in the page:\n%s", text)
		}
		if form == markdown && strings.Contains(text, "</td><script>alert(1)</script>|") {
			t.Errorf("a pipe is in a table as it is:\n%s", text)
		}
		for _, want := range []string{"a.example", "memory", "sed", "evil.example",
			"/workspace/.env", "\u00d75"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q", form, want)
			}
		}
	}
	if err := rep.Write(&bytes.Buffer{}, "pdf", ""); err == nil {
		t.Error("there is a form that is none")
	}
}

func TestNothing(t *testing.T) {
	dir := logged(t)
	if _, err := Make(audit.Scan(dir, audit.Filter{Run: "r1"}), "r1", false); !errors.Is(err,
		ErrNothing) {
		t.Errorf("%v", err)
	}
}

// A run that was cut off is a finding.
func TestUnfinished(t *testing.T) {
	dir := logged(t, audit.Entry{Event: audit.RunStarted{Tool: "true"}})
	rep, err := Make(audit.Scan(dir, audit.Filter{Run: "r1"}), "r1", false)
	if err != nil || len(rep.Findings) != 1 || !rep.Findings[0].Grave {
		t.Errorf("%+v, %v", rep, err)
	}
}

// A run that was refused is none that jail failed, and has no start.
func TestRefused(t *testing.T) {
	for code, want := range map[int]string{127: "run r1 was refused: no tool",
		125: "run r1: jail itself failed: no tool"} {
		dir := logged(t, audit.Entry{Event: audit.RunFinished{ExitCode: code, Error: "no tool"}})
		rep, err := Make(audit.Scan(dir, audit.Filter{Run: "r1"}), "r1", false)
		if err != nil || len(rep.Findings) != 1 || rep.Findings[0].Text != want ||
			rep.Findings[0].Grave != (code == 125) {
			t.Fatalf("%+v, %v", rep, err)
		}
		for _, form := range Forms {
			var page strings.Builder
			if err := rep.Write(&page, form, "fine"); err != nil ||
				!strings.Contains(page.String(), noStart) ||
				strings.Contains(page.String(), "0001-01-01") {
				t.Errorf("%s: %v\n%s", form, err, page.String())
			}
		}
	}
}

// A wide policy is one finding, however many ways it is wide in, and a changed file that looks like
// a secret is one that matters.
func TestWideAndSecret(t *testing.T) {
	run := &Run{Warnings: []string{"one", "two"},
		Files: []string{"added sha256:aa conf/id_rsa", "added sha256:aa plain"}, End: &End{}}
	var texts []string
	for _, f := range run.findings() {
		texts = append(texts, f.Text)
	}
	got := strings.Join(texts, "\n")
	if strings.Count(got, "the policy is wide") != 1 || !strings.Contains(got, "one; two") ||
		!strings.Contains(got, "it changed what looks like a secret: conf/id_rsa") ||
		strings.Contains(got, "plain") {
		t.Errorf("%s", got)
	}
}
