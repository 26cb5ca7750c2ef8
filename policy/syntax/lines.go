package syntax

import (
	"bytes"
	"slices"
	"strings"
)

// lines is a text with the offsets of its lines, for fast lookups of positions.
type lines struct {
	text   []byte
	starts []int32
}

// indexLines returns the lines of a text of at most MaxBytes.
func indexLines(text []byte) lines {
	l := lines{text, make([]int32, 1, bytes.Count(text, []byte("\n"))+1)}
	for i, c := range text {
		if c == '\n' {
			l.starts = append(l.starts, int32(i+1))
		}
	}
	return l
}

// at returns the line and column of an offset, counted from 1.
func (l lines) at(offset int) (line, column int) {
	i, found := slices.BinarySearch(l.starts, int32(offset))
	if !found {
		i--
	}
	return i + 1, offset - int(l.starts[i]) + 1
}

// quote returns line n for quotation in an error, or "" if there is none.
func (l lines) quote(n int) string {
	if n < 1 || n > len(l.starts) {
		return ""
	}
	return quoteLine(l.text[l.starts[n-1]:])
}

// Line returns line n of a text, counted from 1, for quotation in an error.
func Line(text []byte, n int) string { return indexLines(text).quote(n) }

// FirstLine returns the first line of a text for quotation in an error.
func FirstLine(text string) string { return quoteLine([]byte(text)) }

const maxQuoted = 200 // bytes of a line

// quoteLine returns the first line of a text without trailing space, cut at maxQuoted bytes.
func quoteLine(text []byte) string {
	text, _, _ = bytes.Cut(text, []byte("\n"))
	if len(text) > maxQuoted {
		text = text[:maxQuoted]
	}
	return strings.ToValidUTF8(strings.TrimRight(string(text), " \t\r"), "")
}
