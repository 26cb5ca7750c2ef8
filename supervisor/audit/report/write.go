package report

import (
	"embed"
	"fmt"
	htmltemplate "html/template"
	"io"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
)

//go:embed report.txt report.md report.html
var pages embed.FS

// Formats of a report.
const (
	Text     = "text"
	markdown = "markdown"
	html     = "html"
)

// Forms lists the formats of a report.
var Forms = []string{Text, markdown, html}

// page is the data for the templates: the report and what is printed beside it.
type page struct {
	*Report
	Made time.Time
	// Verified is a sentence on whether the log verifies.
	Verified string
}

// Write writes the report as one page in a format of Forms. verified is a sentence on whether the
// log verifies. Recorded text is escaped for the format, so that no tool can control a terminal,
// Markdown reader or browser.
func (rep *Report) Write(w io.Writer, form, verified string) error {
	p := page{rep, time.Now().UTC(), verified}
	switch form {
	case Text:
		return execute(w, "report.txt", audit.Printable, p)
	case markdown:
		return execute(w, "report.md", code, p)
	case html:
		t, err := htmltemplate.New("report.html").Funcs(htmltemplate.FuncMap(
			funcs(audit.Printable))).ParseFS(pages, "report.html")
		if err != nil {
			return err
		}
		return t.Execute(w, p)
	}
	return fmt.Errorf("no form of a report is called %q: want %s", form, strings.Join(Forms, ", "))
}

func execute(w io.Writer, name string, show func(string) string, p page) error {
	t, err := template.New(name).Funcs(funcs(show)).ParseFS(pages, name)
	if err != nil {
		return err
	}
	return t.Execute(w, p)
}

// noStart replaces the arguments of a run that was refused, or whose start was pruned.
const noStart = "(no start on record)"

func funcs(show func(string) string) template.FuncMap {
	return template.FuncMap{
		"show": show,
		"argv": func(argv []string) string {
			words := make([]string, len(argv))
			for i, a := range argv {
				words[i] = audit.Word(a)
			}
			if len(words) == 0 {
				return noStart
			}
			return show(strings.Join(words, " "))
		},
		"when": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
		"short": func(digest string) string {
			return digest[:min(len(digest), len("sha256:")+12)]
		},
		"usage":  usage,
		"head":   func(list []Touched) []Touched { return list[:min(len(list), maxShown)] },
		"behind": func(list []Touched) int { return max(0, len(list)-maxShown) },
		"times": func(n int64) string {
			if n < 2 {
				return ""
			}
			return fmt.Sprintf(" ×%d", n)
		},
	}
}

// maxShown bounds the touched files that a page lists.
const maxShown = 40

// code returns a Markdown code span with any text: its fence is longer than any run of backquotes
// in the text.
func code(s string) string {
	s = audit.Printable(s)
	if s == "" {
		return ""
	}
	fence := "`"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	// In a table a pipe ends the cell, also within a span.
	s = strings.ReplaceAll(s, "|", `\|`)
	if strings.HasPrefix(s, "`") || strings.HasSuffix(s, "`") {
		s = " " + s + " "
	}
	return fence + s + fence
}

// usage returns the non-zero values of a run's usage as text, sorted by name.
func usage(u map[string]int64) string {
	var parts []string
	for name, n := range u {
		if n != 0 {
			parts = append(parts, fmt.Sprintf("%s %d", name, n))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
