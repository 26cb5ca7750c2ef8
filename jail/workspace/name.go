package workspace

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jail-sandbox/jail/policy/paths"
)

// Name is a path or a link target as it is on disk: any bytes but NUL. String and the JSON form
// escape, as in Go, each byte or character that a terminal would not show as itself, so that it can
// be printed, compared by eye, and turned back with ParseName. The raw bytes are string(n).
type Name string

// String escapes n for people.
func (n Name) String() string {
	if plain(string(n)) {
		return string(n)
	}
	var b strings.Builder
	for rest := string(n); rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, rest[0])
		case r == '\\':
			b.WriteString(`\\`)
		// Neither control nor format characters, nor any space but ' '.
		case strconv.IsPrint(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		rest = rest[size:]
	}
	return b.String()
}

func plain(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' || r == '\\' })
}

// ParseName is the inverse of String.
func ParseName(s string) (Name, error) {
	var b []byte
	for rest := s; rest != ""; {
		r, multibyte, tail, err := strconv.UnquoteChar(rest, 0)
		if err != nil {
			return "", fmt.Errorf("name %q: a backslash begins no escape", s)
		}
		if r < utf8.RuneSelf || !multibyte {
			b = append(b, byte(r))
		} else {
			b = utf8.AppendRune(b, r)
		}
		rest = tail
	}
	return Name(b), nil
}

// MarshalText returns the escaped form.
func (n Name) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText parses the escaped form.
func (n *Name) UnmarshalText(text []byte) error {
	parsed, err := ParseName(string(text))
	*n = parsed
	return err
}

// join appends an entry to a path relative to the workspace, which is "".
func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// split splits a path into its directory and its last component.
func split(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(i, 0)], path[i+1:]
}

// within reports whether path is dir or lies below it, both relative to the tree, which is "".
func within(dir, path string) bool { return dir == "" || paths.Within(dir, path) }

func parentOf(path string) string { dir, _ := split(path); return dir }
