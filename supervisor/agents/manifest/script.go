package manifest

import (
	"slices"
	"strings"
)

// An importOf is an import of a module by a script, with its position.
type importOf struct {
	name   string
	offset int
}

// scriptImports returns the imports of a JavaScript or TypeScript script: by import and export
// from, import() and require(). It skips comments and other strings. It only helps authors: the
// jail enforces what an agent may do.
func scriptImports(text []byte) (out []importOf) {
	l := lexer{text: string(text)}
	var last [2]token
	for {
		t := l.next(last[1])
		if t.kind == end {
			return out
		}
		from := last[1]
		called := from.is("(") && (last[0].is("require") || last[0].is("import"))
		if t.kind == quoted && (called || from.is("from") || from.is("import")) {
			out = append(out, importOf{t.text, t.offset})
		}
		last = [2]token{last[1], t}
	}
}

// Kinds of tokens.
const (
	end = iota
	word
	quoted
	mark
)

type token struct {
	kind   int
	text   string
	offset int
}

func (t token) is(text string) bool { return t.kind != quoted && t.text == text }

// A lexer splits a script into tokens, as far as the search for imports needs them.
type lexer struct {
	text string
	at   int
	// nested counts the open braces within each ${ of open template literals.
	nested []int
}

func (l *lexer) rest() string { return l.text[l.at:] }

// skip skips white space and comments.
func (l *lexer) skip() {
	for l.at < len(l.text) {
		rest := l.rest()
		switch {
		case strings.HasPrefix(rest, "//"):
			l.to("\n")
		case strings.HasPrefix(rest, "/*"):
			l.at += 2
			l.to("*/")
		case strings.IndexByte(" \t\r\n\v\f", rest[0]) >= 0:
			l.at++
		default:
			return
		}
	}
}

// to skips to the end of the next occurrence of what.
func (l *lexer) to(what string) {
	if i := strings.Index(l.rest(), what); i >= 0 {
		l.at += i + len(what)
		return
	}
	l.at = len(l.text)
}

func isWord(c byte) bool {
	return c == '_' || c == '$' || c >= 0x80 || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' ||
		c >= 'A' && c <= 'Z'
}

// next returns the next token. before is the previous one.
func (l *lexer) next(before token) token {
	l.skip()
	if l.at >= len(l.text) {
		return token{kind: end}
	}
	start, c := l.at, l.text[l.at]
	switch {
	case c == '"' || c == '\'':
		l.at++
		return token{quoted, l.quoted(c), start}
	case c == '`':
		l.at++
		return l.template(start)
	case c == '}' && len(l.nested) > 0 && l.nested[len(l.nested)-1] == 0:
		l.nested = l.nested[:len(l.nested)-1]
		l.at++
		return l.template(start)
	case c == '/' && beginsValue(before):
		l.at++
		l.regexp()
		return token{quoted, "", start}
	case isWord(c):
		for l.at < len(l.text) && isWord(l.text[l.at]) {
			l.at++
		}
		return token{word, l.text[start:l.at], start}
	}
	if n := len(l.nested); n > 0 && c == '{' {
		l.nested[n-1]++
	} else if n > 0 && c == '}' {
		l.nested[n-1]--
	}
	l.at++
	return token{mark, l.text[start:l.at], start}
}

// quoted reads the rest of a string after its opening quote and returns it with ASCII escapes
// decoded.
func (l *lexer) quoted(quote byte) string {
	var b strings.Builder
	for l.at < len(l.text) {
		c := l.text[l.at]
		l.at++
		switch {
		case c == quote || c == '\n':
			return b.String()
		case c == '\\' && l.at < len(l.text):
			l.escape(&b)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// escape reads an escape sequence after its backslash and appends its value to b.
func (l *lexer) escape(b *strings.Builder) {
	c := l.text[l.at]
	l.at++
	digits := map[byte]int{'x': 2, 'u': 4}[c]
	if digits == 0 {
		if c != '\n' {
			b.WriteByte(c)
		}
		return
	}
	hex := l.rest()
	if strings.HasPrefix(hex, "{") {
		hex, _, _ = strings.Cut(hex[1:], "}")
		l.at += 2
	} else {
		hex = hex[:min(digits, len(hex))]
	}
	l.at = min(l.at+len(hex), len(l.text))
	value := 0
	for _, h := range strings.ToLower(hex) {
		value = value*16 + max(strings.IndexRune("0123456789abcdef", h), 0)
		value = min(value, 0x10ffff)
	}
	b.WriteRune(rune(value))
}

// template reads a template literal to its end or the next ${. One without ${ may name a module, as
// in import(`fs`).
func (l *lexer) template(start int) token {
	var b strings.Builder
	for l.at < len(l.text) {
		rest := l.rest()
		switch {
		case rest[0] == '`':
			l.at++
			return token{quoted, b.String(), start}
		case strings.HasPrefix(rest, "${"):
			l.at += 2
			l.nested = append(l.nested, 0)
			return token{mark, "${", start}
		case rest[0] == '\\' && len(rest) > 1:
			l.at++
			l.escape(&b)
		default:
			b.WriteByte(rest[0])
			l.at++
		}
	}
	return token{kind: end}
}

// beginsValue reports whether a slash after t starts a regular expression, and is not a division.
func beginsValue(t token) bool {
	switch t.kind {
	case end:
		return true
	case mark:
		return !t.is(")") && !t.is("]") && !t.is("}")
	case word:
		return slices.Contains([]string{"return", "typeof", "case", "in", "of", "void", "delete",
			"throw", "new", "else", "do", "await", "yield"}, t.text)
	}
	return false
}

// regexp skips a regular expression after its opening slash.
func (l *lexer) regexp() {
	class := false
	for l.at < len(l.text) {
		c := l.text[l.at]
		l.at++
		switch {
		case c == '\n' || c == '/' && !class:
			return
		case c == '\\':
			l.at = min(l.at+1, len(l.text))
		case c == '[':
			class = true
		case c == ']':
			class = false
		}
	}
}
