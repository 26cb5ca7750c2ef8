package syntax

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Position is a position in a file. Lines and columns count from 1, columns in bytes.
type Position struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
}

func (p Position) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column) }

// Error is one error in a file.
type Error struct {
	Position
	// Message says what is wrong, and why, in one sentence.
	Message string
	// Hint says what to do about it, or is "".
	Hint string
	// Text is the line with the error, or "".
	Text string
	// Incomplete is set if the file lacks a key that a profile needs and a fragment does not.
	Incomplete bool
}

func (e Error) Error() string {
	if e.Hint == "" {
		return e.Position.String() + ": " + e.Message
	}
	return e.Position.String() + ": " + e.Message + ": " + e.Hint
}

// maxErrors bounds the errors of one policy and its includes. Nobody reads more, and each takes
// time to quote.
const maxErrors = 100

// Errors are the errors in a file and its includes, in order, at most maxErrors. The last one then
// says that reading ended.
type Errors []Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the single errors.
func (e Errors) Unwrap() []error {
	out := make([]error, len(e))
	for i, one := range e {
		out[i] = one
	}
	return out
}

// Report returns the errors of a file that is no policy: at most maxErrors, in order, each with its
// line. It returns nil if there are none.
func Report(source string, text []byte, found []Error) error {
	if len(found) == 0 {
		return nil
	}
	var errs Errors
	for _, one := range found {
		errs.add(one.Position, one.Hint, "%s", one.Message)
	}
	return errs.sorted().quoted(map[string][]byte{source: text[:min(len(text), MaxBytes)]})
}

// full reports whether maxErrors is reached, so that no more of the file is read.
func (e *Errors) full() bool { return len(*e) >= maxErrors }

func (e *Errors) add(pos Position, hint, format string, args ...any) {
	switch {
	case e.full():
	case len(*e) == maxErrors-1:
		*e = append(*e, Error{Position: pos, Hint: "mend these, and check again",
			Message: fmt.Sprintf("there are more errors than the first %d, which are shown",
				maxErrors-1)})
	default:
		*e = append(*e,
			Error{Position: pos, Message: cut(fmt.Sprintf(format, args...)), Hint: cut(hint)})
	}
}

// maxMessage bounds the bytes of a message, which may quote a long value.
const maxMessage = 1000

func cut(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage], "") + "…"
}

// join appends the errors of another file, up to maxErrors.
func (e *Errors) join(more Errors) { *e = append(*e, more[:min(len(more), maxErrors-len(*e))]...) }

// sorted returns the errors by position, file by file in the order of each file's first error.
func (e Errors) sorted() Errors {
	files := map[string]int{}
	for _, one := range e {
		if _, ok := files[one.File]; !ok {
			files[one.File] = len(files)
		}
	}
	slices.SortStableFunc(e, func(a, b Error) int {
		return cmp.Or(cmp.Compare(files[a.File], files[b.File]), cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column))
	})
	return slices.Compact(e)
}

// quoted sets the Text of each error to its line.
func (e Errors) quoted(texts map[string][]byte) Errors {
	indexed := map[string]lines{}
	for i := range e {
		l, ok := indexed[e[i].File]
		if !ok {
			l = indexLines(texts[e[i].File])
			indexed[e[i].File] = l
		}
		if e[i].Text == "" {
			e[i].Text = l.quote(e[i].Line)
		}
	}
	return e
}

// DidYouMean returns a hint with the word of words that is most similar, or "".
func DidYouMean(word string, words []string) string {
	best, distance := "", 3
	for _, w := range words {
		d := editDistance(strings.ToLower(word), w)
		// At most two letters may differ, and less than half of a word.
		if d < distance && d*2 < max(len(w), 2) {
			best, distance = w, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("did you mean `%s`?", best)
}

// editDistance returns the number of insertions, deletions, replacements and swaps of neighbours.
func editDistance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
