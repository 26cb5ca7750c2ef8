package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Header is the first line of a table of records, for Render.
const Header = "SEQ       TIME                         TYPE                 RUN           UID " +
	"   DETAIL"

// Render writes r as one line of a table. The line is safe on any terminal: control and invisible
// bytes are written as Go escapes, from which the reader can restore the recorded text.
func Render(w io.Writer, r Record) error {
	var b strings.Builder
	run := "-"
	if r.Run != "" {
		run = word(r.Run)
	}
	fmt.Fprintf(&b, "%-9d %s %-20s %-13s %-6d", r.Seq,
		r.Time.UTC().Format("2006-01-02T15:04:05.000000Z"), word(string(r.Type)), run, r.Actor.UID)
	for _, f := range r.Fields {
		b.WriteByte(' ')
		b.WriteString(f.Name)
		b.WriteByte('=')
		renderValue(&b, f.Value)
	}
	b.WriteByte('\n')
	_, err := io.WriteString(w, b.String())
	return err
}

// RenderJSON writes r's line as in the log. The log has control and hidden characters only as
// escapes, and ParseRecord rejects raw C0 and DEL; other such characters in a forged line are
// escaped here.
func RenderJSON(w io.Writer, r Record) error {
	_, err := w.Write(append(EscapeJSON(r.Line), '\n'))
	return err
}

// EscapeJSON returns the JSON text with an escape for every control or invisible character in it.
// Its value stays the same.
func EscapeJSON(text []byte) []byte {
	line := make([]byte, 0, len(text)+1)
	for i := 0; i < len(text); {
		c, n := utf8.DecodeRune(text[i:])
		if !hidden(c) || c < utf8.RuneSelf && c != 0x7f {
			line = append(line, text[i:i+n]...)
		} else {
			line = append(line, bytes.Trim(appendString(nil, string(c)), `"`)...)
		}
		i += n
	}
	return line
}

func renderValue(b *strings.Builder, v json.RawMessage) {
	dec := json.NewDecoder(bytes.NewReader(v))
	dec.UseNumber()
	depth, objects := 0, [maxDepth + 1]bool{}
	key, sep := false, ""
	for {
		t, err := dec.Token()
		if err != nil {
			// The end of v: no error is possible, since v was parsed before.
			return
		}
		if d, ok := t.(json.Delim); ok && (d == ']' || d == '}') {
			b.WriteByte(byte(d))
			depth--
			sep, key = ",", objects[max(depth, 0)]
			continue
		}
		b.WriteString(sep)
		switch t := t.(type) {
		case json.Delim:
			b.WriteByte(byte(t))
			depth++
			objects[min(depth, maxDepth)] = t == '{'
			key, sep = t == '{', ""
			continue
		case string:
			if key {
				b.WriteString(t)
				key, sep = false, ":"
				continue
			}
			b.WriteString(word(t))
		default:
			fmt.Fprint(b, t)
		}
		sep, key = ",", objects[max(depth, 0)]
	}
}

// word returns Word of a text as stored in the log.
func word(stored string) string { return Word(Original(stored)) }

// Printable returns s with Go escapes in place of control and invisible characters.
func Printable(s string) string {
	w := Word(s)
	if len(w) > 1 && w[0] == '"' {
		w = strings.ReplaceAll(w[1:len(w)-1], `\"`, `"`)
	}
	return w
}

// Word returns s unchanged if it is printable and without spaces and quotes, otherwise quoted with
// Go escapes.
func Word(s string) string {
	plain := s != ""
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
			plain = false
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
			plain = false
		case r == '\n':
			b.WriteString(`\n`)
			plain = false
		case r < 0x80 && hidden(r):
			fmt.Fprintf(&b, `\x%02x`, r)
			plain = false
		case hidden(r):
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
			plain = false
		default:
			plain = plain && r != ' ' && r != '=' && r != ',' && r != '[' && r != '{'
			b.WriteRune(r)
		}
		i += n
	}
	if plain {
		return s
	}
	b.WriteByte('"')
	return b.String()
}
