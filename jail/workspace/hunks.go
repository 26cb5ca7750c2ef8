package workspace

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff"
)

// Hunk is a part of the differences of a text file that can be taken or left by itself. The hunks
// of a file are the same for the same two contents, so the digest of the change set and a number
// identify a hunk.
type Hunk struct {
	// From is a line of the real file, from 1.
	From      int `json:"from"`
	FromLines int `json:"from_lines"`
	// To is a line of the shadow's file, from 1.
	To      int `json:"to"`
	ToLines int `json:"to_lines"`
	// Each begins with a space, - or +, or with \ for what is said about the line before;
	// control characters are escaped.
	Lines []string `json:"lines"`
}

// FileHunks are the hunks of one file that is text on both sides.
type FileHunks struct {
	Path  Name   `json:"path"`
	Hunks []Hunk `json:"hunks"`
}

const noNewline = `\ No newline at end of file`

// Unified returns the difference of two texts as a unified diff, "" where they are equal.
func Unified(path, from, to string) string { return udiff.Unified(path, path, from, to) }

// unified compares two texts.
func unified(old, text string) ([]*udiff.Hunk, error) {
	u, err := udiff.ToUnifiedDiff("", "", old, udiff.Lines(old, text), contextSize)
	return u.Hunks, err
}

func lineCounts(h *udiff.Hunk) (froms, tos int) {
	for _, l := range h.Lines {
		if l.Kind != udiff.Insert {
			froms++
		}
		if l.Kind != udiff.Delete {
			tos++
		}
	}
	return froms, tos
}

// hunksOf returns the hunks of a change, nil if there are none to choose among.
func (p *patcher) hunksOf(c Change) ([]Hunk, error) {
	if c.Kind != Modified || c.Refused != "" {
		return nil, nil
	}
	before, after, err := p.sides(c)
	if errors.Is(err, errNoText) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	hunks, err := unified(before.text, after.text)
	if err != nil {
		return nil, err
	}
	var out []Hunk
	more := 0
	for _, h := range hunks {
		froms, tos := lineCounts(h)
		shown := Hunk{From: h.FromLine, FromLines: froms, To: h.FromLine + more, ToLines: tos}
		for _, l := range h.Lines {
			text, complete := strings.CutSuffix(l.Content, "\n")
			shown.Lines = append(shown.Lines, string(lineMark(l.Kind))+escapeLine(text))
			if !complete {
				shown.Lines = append(shown.Lines, noNewline)
			}
		}
		more += tos - froms
		out = append(out, shown)
	}
	return out, nil
}

func lineMark(k udiff.OpKind) byte {
	switch k {
	case udiff.Insert:
		return '+'
	case udiff.Delete:
		return '-'
	}
	return ' '
}

func (p *patcher) sides(c Change) (before, after *side, err error) {
	if before, err = p.side(c, c.Before, p.readReal); err != nil {
		return nil, nil, err
	}
	after, err = p.side(c, c.After, p.readUpper)
	return before, after, err
}

// someHunks returns the real text with only the hunks take, by number from 0, and the number of all
// hunks.
func someHunks(old, text string, take []int) (result string, of int, err error) {
	hunks, err := unified(old, text)
	if err != nil {
		return "", 0, err
	}
	for _, n := range take {
		if n < 0 || n >= len(hunks) {
			return "", len(hunks), fmt.Errorf("%w: there is no hunk %d of %d", ErrNoChange, n,
				len(hunks))
		}
	}
	lines := strings.SplitAfter(old, "\n")
	var b strings.Builder
	at := 0
	for n, h := range hunks {
		froms, _ := lineCounts(h)
		start := min(max(h.FromLine-1, at), len(lines))
		for _, l := range lines[at:start] {
			b.WriteString(l)
		}
		drop := udiff.Insert
		if slices.Contains(take, n) {
			drop = udiff.Delete
		}
		for _, l := range h.Lines {
			if l.Kind != drop {
				b.WriteString(l.Content)
			}
		}
		at = min(start+froms, len(lines))
	}
	for _, l := range lines[at:] {
		b.WriteString(l)
	}
	return b.String(), len(hunks), nil
}

// textNode describes a file with that text.
func textNode(text string, mode uint32) *Node {
	return &Node{Type: File, Mode: mode, Size: int64(len(text)),
		SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(text)))}
}

// takeHunks reduces a change to the hunks take. whole is true if these are all hunks.
func (d decision) takeHunks(c Change, take []int) (part Change, text string, whole bool,
	err error) {
	p := &patcher{w: d.w}
	if c.Kind != Modified || c.Refused != "" {
		return c, "", false, fmt.Errorf("%s: %w: only a file that was modified has hunks", c.Path,
			ErrNoChange)
	}
	before, after, err := p.sides(c)
	if errors.Is(err, errNoText) {
		return c, "", false, fmt.Errorf(
			"%s: %w: its content is no text, or too long, and has no hunks", c.Path, ErrNoChange)
	}
	if err != nil {
		return c, "", false, err
	}
	text, of, err := someHunks(before.text, after.text, take)
	if err != nil {
		return c, "", false, fmt.Errorf("%s: %w", c.Path, err)
	}
	if len(slices.Compact(slices.Sorted(slices.Values(take)))) == of {
		return c, "", true, nil
	}
	// The mode comes with the last hunks.
	c.After = textNode(text, c.Before.Mode)
	return c, text, false, nil
}
