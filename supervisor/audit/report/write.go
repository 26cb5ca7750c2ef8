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

// Forms of a report.
const (
	Text     = "text"
	Markdown = "markdown"
	HTML     = "html"
)

// Forms lists them.
var Forms = []string{Text, Markdown, HTML}

// page is what the templates see besides the report.
type page struct {
	*Report
	Made     time.Time
	Verified string // a sentence on the state of the log
}

// Write writes the report on one page. verified is a sentence on whether the log verifies. What was recorded is escaped for where it goes: no byte
// that a tool chose is obeyed by a terminal, a Markdown reader or a browser.
func (rep *Report) Write(w io.Writer, form, verified string) error {
	p := page{rep, time.Now().UTC(), verified}
	switch form {
	case Text:
		return execute(w, "report.txt", audit.Printable, p)
	case Markdown:
		return execute(w, "report.md", code, p)
	case HTML:
		t, err := htmltemplate.New("report.html").Funcs(htmltemplate.FuncMap(funcs(audit.Printable))).ParseFS(pages, "report.html")
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

func funcs(show func(string) string) template.FuncMap {
	return template.FuncMap{
		"show": show,
		"argv": func(argv []string) string {
			words := make([]string, len(argv))
			for i, a := range argv {
				words[i] = audit.Word(a)
			}
			return show(strings.Join(words, " "))
		},
		"when":   func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
		"short":  func(digest string) string { return digest[:min(len(digest), len("sha256:")+12)] },
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

// maxShown is how many files that were touched a page names.
const maxShown = 40

// code is a Markdown code span of any text: its fence is longer than any run of backquotes within.
func code(s string) string {
	s = audit.Printable(s)
	if s == "" {
		return ""
	}
	fence := "`"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	s = strings.ReplaceAll(s, "|", `\|`) // in a table a pipe ends the cell also within a span
	if strings.HasPrefix(s, "`") || strings.HasSuffix(s, "`") {
		s = " " + s + " "
	}
	return fence + s + fence
}

// usage shows what a run took, in the order of the names.
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
