package policy

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/meaning"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/profiles"
)

var update = flag.Bool("update", false, "write the golden files anew")

const (
	profileDir = "../../../profiles"
	pageDir    = "../../../docs/profiles"
)

// Each shipped profile has a page, made from it, a test file and a plan on record.
func TestProfilePages(t *testing.T) {
	set, err := profiles.Load("")
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{}
	index := "# Shipped profiles\n\n" +
		"Made from the profiles themselves by `go test ./cmd/jail/policy -run ProfilePages " +
		"-update`.\n\n| profile | what it is for | exposure |\n|---|---|---|\n"
	for _, p := range set.For(syntax.Places{}).List() {
		if p.Fragment {
			continue
		}
		score := meaning.Measure(p.File.Policy, reachableCalls(p.File.Policy))
		pages[p.Name+".md"] = profilePage(t, p, score)
		index += fmt.Sprintf("| [%s](%s.md) | %s | %d of 100 |\n", p.Name, p.Name, p.About,
			score.Points)
	}
	pages["README.md"] = index
	if len(pages) < 11 {
		t.Fatalf("only %d pages", len(pages))
	}
	if *update {
		if err := os.MkdirAll(pageDir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range pages {
		path := filepath.Join(pageDir, name)
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s is not what the profile says: go test ./cmd/jail/policy -run "+
				"ProfilePages -update (%v)", path, err)
		}
	}
	there, err := filepath.Glob(filepath.Join(pageDir, "*.md"))
	if err != nil || len(there) != len(pages) {
		t.Errorf("%d pages of %d profiles: %v", len(there), len(pages)-1, err)
	}
}

func profilePage(t *testing.T, p profiles.Profile, score meaning.Score) string {
	t.Helper()
	expect, err := os.ReadFile(filepath.Join(profileDir, p.Name+".expect"))
	if err != nil {
		t.Errorf("profile %s has no tests: %v", p.Name, err)
	}
	if _, err := os.Stat(filepath.Join("../../../jail/testdata", "plan-"+p.Name+
		".json")); errors.Is(err, fs.ErrNotExist) {
		t.Errorf("profile %s has no plan on record", p.Name)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s\n\nMade from [profiles/%s.toml](../../profiles/%s.toml).\n\n",
		p.Name, p.About, p.Name, p.Name)
	var runs, prose []string
	for line := range strings.Lines(string(p.Text)) {
		text, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "#")
		if !ok {
			break
		}
		if text = strings.TrimPrefix(text, " "); strings.HasPrefix(text, "jail ") {
			runs = append(runs, "    "+text)
		} else {
			prose = append(prose, text)
		}
	}
	fmt.Fprintf(&b, "%s\n\n%s\n\n", strings.Join(runs, "\n"),
		strings.TrimSpace(strings.Join(prose, "\n")))
	x, err := meaning.Explain([]meaning.Source{{Layer: p.File.Layer("profile "+p.Name, p.Origin),
		File: &p.File}})
	if err != nil {
		t.Fatal(err)
	}
	b.WriteString(
		"## What is in force\n\nWithout a ceiling, and with nothing narrowed by a run.\n\n" +
			"| item | value |\n|---|---|\n")
	for _, i := range x.Items {
		fmt.Fprintf(&b, "| `%s` | %s |\n", i.Key, cell(i.Value))
	}
	for i, w := range x.Warnings {
		if i == 0 {
			b.WriteString("\n## What weakens\n\n")
		}
		fmt.Fprintf(&b, "- %s\n", w)
	}
	fmt.Fprintf(&b, "\n## Exposure: %d of 100\n\n| part | points | why |\n|---|---|---|\n",
		score.Points)
	for _, part := range score.Parts {
		fmt.Fprintf(&b, "| %s | %d of %d | %s |\n", part.Name, part.Points, part.Max,
			cell(strings.Join(part.Why, "; ")))
	}
	fmt.Fprintf(&b,
		"\n## What it promises\n\n"+
			"`jail policy test profiles/%s.expect` asks the policy, and jails that run with it:\n\n", p.Name)
	for line := range strings.Lines(string(expect)) {
		b.WriteString(strings.TrimRight("    "+line, " \n") + "\n")
	}
	fmt.Fprintf(&b,
		"\nWhat the kernel is told for a run with it: [plan-%s.json](../../jail/testdata/plan-%s.json).\n", p.Name, p.Name)
	return b.String()
}

func cell(text string) string {
	if text == "" {
		return ""
	}
	return "`" + strings.ReplaceAll(text, "|", "\\|") + "`"
}

// Every shipped profile checks without an error, and the score of none creeps up unseen.
func TestShippedScores(t *testing.T) {
	set, err := profiles.Load("")
	if err != nil {
		t.Fatal(err)
	}
	most := map[string]int{"agent": 8, "agent-native": 18, "strict": 5, "readonly": 8, "default": 8, "python": 12,
		"python-native": 18, "fetch": 22, "worker": 30, "build": 30, "claude-code": 45, "codex": 45, "container": 30}
	for name, max := range most {
		p, err := set.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		if s := meaning.Measure(p.File.Policy, reachableCalls(p.File.Policy)); s.Points > max {
			t.Errorf("%s scores %d, more than %d", name, s.Points, max)
		}
	}
	if wide := meaning.Measure(policy.Top(), reachableCalls(policy.Top())); wide.Points < 60 {
		t.Errorf("a policy that grants everything scores %d", wide.Points)
	}
}
