package report

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/console/consoletest"
)

// withText are records of a run that have a text wherever they can have one, also where the daemon
// itself would put a word of its own.
func withText(s string) []audit.Entry {
	c := audit.Changes{Added: 1}
	var list []audit.Entry
	for _, e := range []audit.Event{
		audit.RunStarted{Tool: s, Digest: "sha256:aa", Argv: []string{s, s}, Cwd: s,
			Workspace: "/w" + s, Profile: s, Env: []string{s}, Warnings: []string{s}},
		audit.Exec{Program: s, Digest: "sha256:bb", Argv: []string{s}, Cwd: s},
		audit.Denied{Layer: s, What: s, Rule: s, Count: 1},
		audit.Fetch{Decision: s, Method: s, Scheme: s, Host: s, Port: 443, Path: s, Rule: s,
			Error: s},
		audit.File{Path: s, Kind: s, Program: s, Count: 1},
		audit.Limit{Name: s, Limit: 1, Peak: 2, Action: s},
		audit.WorkspaceChanged{Workspace: "/w" + s, Digest: "sha256:cc", Changes: c,
			Files: []string{"added sha256:00 f" + s}},
		audit.RunFinished{ExitCode: 3, Signal: s, Limit: s, Error: s},
		audit.WorkspaceCommitted{Workspace: "/w" + s, Digest: "sha256:cc", Changes: c,
			Held: []string{s}, Error: s},
	} {
		list = append(list, audit.Entry{Event: e, Policy: "sha256:dd"})
	}
	return list
}

// recordsWith puts a run with each text into one log, all at once, and reads them back.
func recordsWith(t *testing.T, texts []string) map[string][]audit.Record {
	t.Helper()
	dir := t.TempDir()
	l, err := audit.Open(audit.Options{Dir: filepath.Join(dir, "log"),
		KeyDir: filepath.Join(dir, "keys")})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i, s := range texts {
		all.Go(func() {
			for _, e := range withText(s) {
				e.Run, e.Actor = fmt.Sprint("r", i), audit.Actor{UID: 7, PID: 8, Exe: "/usr/bin/" +
					s}
				if _, err := l.Append(context.Background(), e); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	records := map[string][]audit.Record{}
	for r, err := range audit.Scan(filepath.Join(dir, "log"), audit.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		records[r.Run] = append(records[r.Run], r)
	}
	return records
}

var (
	number = regexp.MustCompile(`record \d+`)
	fences = regexp.MustCompile("`+")
	times  = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC`)
)

// prose is Markdown without its code spans, as CommonMark reads them: a run of backquotes is closed
// by the next one of its length.
func prose(md string) string {
	var out strings.Builder
	// A span that a line does not end would be a fault, and is left in.
	for line := range strings.Lines(md) {
		for line != "" {
			at := fences.FindStringIndex(line)
			if at == nil {
				break
			}
			fence, rest, closed := line[at[0]:at[1]], line[at[1]:], -1
			for _, next := range fences.FindAllStringIndex(rest, -1) {
				if next[1]-next[0] == len(fence) {
					closed = next[1]
					break
				}
			}
			if closed < 0 {
				break
			}
			// In a table a pipe ends a cell also within a span, but where it is escaped.
			out.WriteString(line[:at[0]] + strings.Repeat("|",
				strings.Count(strings.ReplaceAll(rest[:closed], `\|`, ""), "|")))
			line = rest[closed:]
		}
		out.WriteString(line)
	}
	return times.ReplaceAllString(out.String(), "T")
}

// T-547: whatever stands in a record, what is shown of it is obeyed by no terminal, no Markdown
// reader and no browser. That of Markdown only code spans differ from those of a harmless run shows
// that nothing got out of one.
func TestHostileEverywhere(t *testing.T) {
	texts := append([]string{"x"}, consoletest.Hostile...)
	records := recordsWith(t, texts)
	write := func(i int, form string) string {
		id := fmt.Sprint("r", i)
		rep, err := Make(func(yield func(audit.Record, error) bool) {
			for _, r := range records[id] {
				if !yield(r, nil) {
					return
				}
			}
		}, id, false)
		if err != nil {
			t.Fatalf("%.40q: %v", texts[i], err)
		}
		// The findings depend on what the names mean.
		rep.Findings, rep.First, rep.Last = nil, 0, 0
		var b bytes.Buffer
		if err := rep.Write(&b, form, "It was not verified."); err != nil {
			t.Fatal(err)
		}
		return number.ReplaceAllString(strings.ReplaceAll(b.String(), id, "ID"), "record N")
	}
	hidden := func(r rune) bool {
		return unicode.IsControl(r) && r != '\n' || unicode.In(r, unicode.Bidi_Control, unicode.Cf,
			unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point)
	}
	harmless := prose(write(0, markdown))
	if !strings.Contains(harmless, "| tool |") || strings.Contains(harmless, "`") {
		t.Fatalf("the control: %s", harmless)
	}
	for i, s := range texts {
		if s == "" {
			continue // leaves rows out
		}
		for _, form := range Forms {
			out := write(i, form)
			if at := strings.IndexFunc(out, hidden); at >= 0 || !utf8.ValidString(out) {
				t.Errorf("%s of %.60q has a character that is obeyed or not shown: %q", form, s,
					out[max(0, at-20):min(len(out), max(0, at)+20)])
			}
			low := strings.ToLower(out)
			for _, bad := range []string{"<script", "<img", "<svg", "<iframe", "<math", "<base",
				"<object", "<embed", "<form", "<!--", `href="`, `src="`} {
				if i := strings.Index(low, bad); form == html && i >= 0 {
					t.Errorf("%s of %.60q has %s: %q", form, s, bad,
						out[max(0, i-20):min(len(out), i+40)])
				}
			}
			if form != markdown {
				continue
			}
			if got := prose(out); got != harmless {
				t.Errorf("Markdown of %.60q: outside of code spans it has\n%s\nwant\n%s", s, got,
					harmless)
			}
		}
		for _, r := range records[fmt.Sprint("r", i)] {
			for _, render := range []func(*bytes.Buffer) error{func(b *bytes.Buffer) error {
				return audit.Render(b, r)
			}, func(b *bytes.Buffer) error { return audit.RenderJSON(b, r) }} {
				var b bytes.Buffer
				if err := render(&b); err != nil || strings.Count(b.String(), "\n") != 1 ||
					strings.ContainsFunc(b.String(), hidden) || !utf8.ValidString(b.String()) {
					t.Errorf("record %d of %.60q is shown as %q, %v", r.Seq, s, b.String(), err)
				}
			}
		}
	}
}
