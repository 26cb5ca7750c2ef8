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

// functions are those of the templates. Every text that is not ours goes through one of them, and
// then through the template's own escaping for where it stands; a test looks for what a browser
// would obey or not show.
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

// hidden reports whether a reader would not see r, or see it move other text.
func hidden(r rune) bool {
	return r != '\t' && !strconv.IsPrint(r) ||
		unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// visible reports whether all of a text can be seen.
func visible(s string) bool { return utf8.ValidString(s) && strings.IndexFunc(s, hidden) < 0 }

// text shows any text: as it is where all of it can be seen, and else with escapes as in Go source,
// so that it can be turned back.
func text(s string) string {
	if visible(s) {
		return s
	}
	return audit.Printable(s)
}

// raw is text for what the records hold as it was: a backslash is doubled too, so that nothing can
// look like an escape that is none.
func raw(s string) string { return audit.Printable(s) }

// escaped is for a line or name that came escaped, with a doubled backslash wherever it has an
// escape: what is left in it that cannot be seen is made an escape of the same kind.
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

// printableLines is text for each line of a text that has some.
func printableLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = text(l)
	}
	return strings.Join(lines, "\n")
}

// segment is a text as one segment of a URL.
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

// size writes a number of bytes for people.
func size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	f, i := float64(n), 0
	for f >= 1024 && i < len(units)-1 {
		f /= 1024
		i++
	}
	return strings.TrimSuffix(strconv.FormatFloat(f, 'f', 1, 64), ".0") + " " + units[i]
}

// cut is at most the first n bytes of s, without the half of a character at the end.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// clip returns the first n of a list, and how many it leaves out.
func clip[T any](all []T, n int) (first []T, more int) {
	first = all[:min(len(all), n)]
	return first, len(all) - len(first)
}

// recordTable is a table of records; with dates those of a run have a link to it.
type recordTable struct {
	Base    string
	Records []record
	Dates   bool
}

// maxValue is how many bytes of one field of a record a page shows.
const maxValue = 1000

// A field is one of a record's own, to be shown.
type field struct {
	Name, Value string
	// Of a digest that is shown in short.
	Whole string
}

// A record is a line of the log, to be shown.
type record struct {
	Seq  uint64
	Time time.Time
	Type string
	// As it is: for a link.
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

// value shows a field. Texts are turned back into what was recorded, and then escaped.
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

// numbers shows an object of numbers, in its own order and without those that are 0.
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
