package console

import (
	"encoding/json"
	"fmt"
	"html/template"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy/meaning"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

// functions are the template functions. Every untrusted text goes through one of them, and then
// through the template's own escaping. A test checks for text that a browser would interpret or
// hide.
var functions = template.FuncMap{
	"text":    text,
	"brief":   func(data json.RawMessage) string { return text(cut(string(data), maxData)) },
	"segment": segment,
	"size":    size,
	"when":    func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"clock":   func(t time.Time) string { return t.UTC().Format("15:04:05.000") },
	"short":   short,
	"argv":    argv,
	"millis":  func(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() },
	"count":   count,
	"path":    path,
	"kind":    kindWord,
	"class":   kindClass,
	"raw":     raw,
	"where":   where,
	"whereOf": func(o meaning.Origin) string { return where(&o) },
	"query":   query,
	"add":     func(a, b int) int { return a + b },
	"table": func(base string, r []record, dates bool) recordTable {
		return recordTable{base, r, dates}
	},
	"lines":   printableLines,
	"changes": func(here string, rv *review) shownReview { return shownReview{here, rv} },
}

// hidden reports whether a reader would not see r, or r would move other text.
func hidden(r rune) bool {
	return r != '\t' && !strconv.IsPrint(r) ||
		unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// visible reports whether a reader sees every character of a text.
func visible(s string) bool { return utf8.ValidString(s) && strings.IndexFunc(s, hidden) < 0 }

// text returns a text unchanged if all of it is visible, else escaped as in Go source, reversibly.
func text(s string) string {
	if visible(s) {
		return s
	}
	return audit.Printable(s)
}

// raw escapes a text of a record. It also doubles backslashes, so that nothing else looks like an
// escape.
func raw(s string) string { return audit.Printable(s) }

// escaped escapes the invisible characters in a text that is escaped already, with backslashes
// doubled.
func escaped(s string) string {
	if visible(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case hidden(r):
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		default:
			b.WriteRune(r)
		}
		i += n
	}
	return b.String()
}

func path(n workspace.Name) string {
	if n == "" {
		return "."
	}
	return escaped(n.String())
}

// printableLines applies text to each line.
func printableLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = text(l)
	}
	return strings.Join(lines, "\n")
}

// segment returns s escaped as one segment of a URL path.
func segment(s string) string { return url.PathEscape(s) }

func short(digest string) string { return text(digest[:min(len(digest), len("sha256:")+12)]) }

func argv(words []string) string {
	shown := make([]string, len(words))
	for i, w := range words {
		shown[i] = audit.Word(w)
	}
	return strings.Join(shown, " ")
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// size returns a number of bytes with a binary unit.
func size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	f, i := float64(n), 0
	for f >= 1024 && i < len(units)-1 {
		f /= 1024
		i++
	}
	return strings.TrimSuffix(strconv.FormatFloat(f, 'f', 1, 64), ".0") + " " + units[i]
}

// cut returns at most the first n bytes of s, without a partial character at the end.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// clip returns the first n elements of a list, and how many are left out.
func clip[T any](all []T, n int) (first []T, more int) {
	first = all[:min(len(all), n)]
	return first, len(all) - len(first)
}

// recordTable is a table of records. With dates, each record links to its run.
type recordTable struct {
	Base    string
	Records []record
	Dates   bool
}

// maxValue bounds the bytes of a record's field on a page.
const maxValue = 1000

// A field is a field of a record, as a page shows it.
type field struct {
	Name, Value string
	// The full digest, if Value is shortened.
	Whole string
}

// A record is a record of the log, as a page shows it.
type record struct {
	Seq  uint64
	Time time.Time
	Type string
	// Unescaped, for a link.
	Run     string
	Grave   bool
	Session string
	UID     uint32
	Fields  []field
}

var digest = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
})

func shownRecord(r audit.Record) record {
	out := record{Seq: r.Seq, Time: r.Time, Type: text(string(r.Type)), Run: audit.Original(r.Run),
		Session: audit.Original(r.Session), UID: r.Actor.UID,
		Grave: r.Decision() == audit.DecisionDenied}
	for _, f := range r.Fields {
		v := value(r, f)
		if v == "" || r.Type == audit.TypeCheckpoint && f.Name == "note" {
			continue
		}
		if short := cut(v, maxValue); short != v {
			v = fmt.Sprintf("%s… (%d bytes more)", short, len(v)-len(short))
		}
		shown := field{Name: text(f.Name), Value: v}
		if digest().MatchString(v) {
			shown.Value, shown.Whole = short(v)+"…", v
		}
		out.Fields = append(out.Fields, shown)
	}
	return out
}

// value returns a field as text. Strings are decoded as they were recorded, and then escaped.
func value(r audit.Record, f audit.Field) string {
	switch {
	case len(f.Value) == 0:
		return ""
	case f.Value[0] == '"':
		return raw(r.Text(f.Name))
	case f.Value[0] == '[':
		if list := r.Texts(f.Name); list != nil || string(f.Value) == "[]" {
			return argv(list)
		}
	case f.Value[0] == '{':
		var flat map[string]json.Number
		if json.Unmarshal(f.Value, &flat) == nil {
			return numbers(f.Value, flat)
		}
	}
	return text(string(f.Value))
}

// numbers returns an object of numbers as text, in its own order and without zeros.
func numbers(object json.RawMessage, flat map[string]json.Number) string {
	d := json.NewDecoder(strings.NewReader(string(object)))
	var parts []string
	for {
		t, err := d.Token()
		if err != nil {
			return strings.Join(parts, ", ")
		}
		if name, ok := t.(string); ok && flat[name] != "0" && flat[name] != "" {
			parts = append(parts, text(name)+" "+text(string(flat[name])))
		}
	}
}
