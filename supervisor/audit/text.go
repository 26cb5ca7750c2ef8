package audit

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// hidden reports whether r is a control character, invisible, or able to reorder other text.
func hidden(r rune) bool {
	if r < 0xa0 {
		return r < 0x20 || r >= 0x7f
	}
	return !unicode.IsPrint(r) ||
		unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// appendString appends s as a JSON string: see "Text from tools" in the package comment.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			switch {
			case c == '"' || c == '\\':
				dst = append(dst, '\\', c)
			case c == '\n':
				dst = append(dst, '\\', 'n')
			case c < 0x20 || c == 0x7f:
				dst = appendEscape(dst, uint16(c))
			default:
				dst = append(dst, c)
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			dst = append(dst, "\ufffd"...)
			dst = append(dst, hexDigits[c>>4], hexDigits[c&15])
		case r == utf8.RuneError:
			dst = append(dst, "\ufffd\ufffd"...)
		case r >= 0x10000 && hidden(r):
			r -= 0x10000
			dst = appendEscape(dst, uint16(0xd800+r>>10))
			dst = appendEscape(dst, uint16(0xdc00+r&0x3ff))
		case hidden(r):
			dst = appendEscape(dst, uint16(r))
		default:
			dst = append(dst, s[i:i+n]...)
		}
		i += n
	}
	return append(dst, '"')
}

func appendEscape(dst []byte, u uint16) []byte {
	return append(dst, '\\', 'u', hexDigits[u>>12], hexDigits[u>>8&15], hexDigits[u>>4&15],
		hexDigits[u&15])
}

// Original returns the recorded bytes of a text. s is the decoded value of a JSON string in a
// record. Other text is returned unchanged.
func Original(s string) string {
	const mark = "\ufffd"
	if !strings.Contains(s, mark) {
		return s
	}
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, mark)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		switch {
		case strings.HasPrefix(after, mark):
			b.WriteString(mark)
			s = after[len(mark):]
		case len(after) >= 2 && nibble(after[0]) < 16 && nibble(after[1]) < 16:
			b.WriteByte(nibble(after[0])<<4 | nibble(after[1]))
			s = after[2:]
		default:
			b.WriteString(mark)
			s = after
		}
	}
}

// nibble returns the value of a lower-case hexadecimal digit, or 255.
func nibble(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	}
	return 255
}

// clip returns at most the first n bytes of s. It cuts no character in half.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for k := n; k >= 0 && k > n-utf8.UTFMax; k-- {
		if r, size := utf8.DecodeRuneInString(s[k:]); r != utf8.RuneError && k+size > n {
			return s[:k]
		}
	}
	return s[:n]
}
