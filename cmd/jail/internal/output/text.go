// Package output writes text and JSON with all control characters escaped, so that no text of a
// tool can control a terminal.
package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy"
)

// Say writes each line of text with "jail: " and its kind before it. Empty lines are left out.
func Say(w io.Writer, kind, text string) {
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		if line != "" {
			// An error of stderr cannot be reported.
			fmt.Fprintf(w, "jail: %s: %s\n", kind, Printable(line))
		}
	}
}

// Once returns name for row 0, and "" for the others.
func Once(i int, name string) string {
	if i == 0 {
		return name
	}
	return ""
}

// PlainPath matches an absolute path that needs no quotes in a shell.
var PlainPath = regexp.MustCompile(`^/[A-Za-z0-9_@%+=:,./-]*$`)

// Printable returns s unchanged if all of it is printable, else with escapes that
// workspace.ParseName decodes. A tab counts as printable.
func Printable(s string) string {
	for _, r := range s {
		if !strconv.IsPrint(r) && r != '\t' || r == '\uFFFD' {
			return workspace.Name(s).String()
		}
	}
	return s
}

// Finding returns text, then the line of the file that it is about, and a mark below column (from
// 1). If line is "", it returns only text. A tab counts as one column and is shown as a blank.
func Finding(text, line string, column int) string {
	text, line = Printable(text), strings.ReplaceAll(line, "\t", " ")
	if line == "" {
		return text
	}
	mark := strings.Repeat(" ", min(max(column-1, 0), len(line))) + "^"
	return text + "\n    " + Printable(line) + "\n    " + mark
}

// Text returns a function that writes a formatted text, for cli.Env.Show.
func Text(format string, args ...any) func(w io.Writer) {
	return func(w io.Writer) {
		fmt.Fprintf(w, format, args...)
	}
}

// Size returns a number of bytes with a binary unit, such as 256 MiB or 1.5 KiB.
func Size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	f, i := float64(n), 0
	for f >= 1024 && i < len(units)-1 {
		f /= 1024
		i++
	}
	if text := strconv.FormatFloat(f, 'f', 1, 64); !strings.HasSuffix(text, ".0") {
		return text + " " + units[i]
	}
	return strconv.FormatFloat(f, 'f', 0, 64) + " " + units[i]
}

// Age returns how long ago t was, "-" for the zero time.
func Age(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	d := time.Since(t).Round(time.Second)
	switch {
	case d < time.Minute:
		return d.String()
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// Millis returns a number of milliseconds as a duration, such as 1.5s.
func Millis(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }

// Quantity returns a value of the limit called name with its unit. n is in bytes, milliseconds, or
// a count, as the limit has it.
func Quantity(name string, n int64) string {
	_, unit, ok := policy.TopLimits().Get(name)
	switch {
	case ok && unit == policy.Bytes:
		return Size(n)
	case ok && unit == policy.Duration:
		return Millis(n)
	}
	return strconv.FormatInt(n, 10)
}

// Count returns n with the singular or plural of the counted noun.
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// PrintableText calls Printable on each line of a text.
func PrintableText(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		body, ended := strings.CutSuffix(line, "\n")
		b.WriteString(Printable(body))
		if ended {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// Named returns a writer to w whose errors begin with name.
func Named(w io.Writer, name string) io.Writer { return sink{w, name} }

type sink struct {
	io.Writer
	name string
}

// Write writes p; its errors name the stream.
func (s sink) Write(p []byte) (int, error) {
	n, err := s.Writer.Write(p)
	if err != nil {
		err = exit.Failed(err, "", "%s: %v", s.name, exit.Cause(err))
	}
	return n, err
}

// Rows writes a table with a row for each item below the heads.
func Rows[T any](w io.Writer, heads []string, all []T, row func(T) []string) {
	rows := [][]string{heads}
	for _, item := range all {
		rows = append(rows, row(item))
	}
	Table(w, rows)
}

// Table writes rows, which all have the same number of cells, in columns.
func Table(w io.Writer, rows [][]string) {
	var b strings.Builder
	columns := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for _, cell := range row {
			fmt.Fprint(columns, Printable(strings.ReplaceAll(cell, "\t", `\t`)), "\t")
		}
		fmt.Fprintln(columns)
	}
	// Writing to a builder never fails.
	columns.Flush()
	var lines strings.Builder
	for line := range strings.Lines(b.String()) {
		lines.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	io.WriteString(w, lines.String())
}

// WriteJSON writes v as JSON and a newline; on one line if indent is "". Unprintable characters are
// written as \u escapes.
func WriteJSON(w io.Writer, v any, indent string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(escapeJSON(b.Bytes()))
	return err
}

func escapeJSON(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r < 0x7f || strconv.IsPrint(r):
			out = append(out, text[:n]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		text = text[n:]
	}
	return out
}
