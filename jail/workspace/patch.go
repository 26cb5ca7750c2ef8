package workspace

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// PatchOptions say how a patch is written: unified diffs in git's format. Text of up to 1 MiB per
// file is written as hunks for git apply. Changes that the format cannot express (directories,
// special files, binary and large content) are lines that begin with '#', which git apply skips.
// Content that the caller cannot read is not shown. Nothing is executed.
type PatchOptions struct {
	// Terminal also escapes control characters of the content. Without it the content is as in the
	// files, for git apply.
	Terminal bool
	// Paths are the paths to show, each with everything beneath it; nil shows all. A path that has
	// a *, ? or [ is a pattern as well, as in CommitOptions, even if a change has that name.
	Paths []Name
}

const (
	// maxPatched bounds the bytes of a file whose lines are compared. Larger files are shown by
	// size and hash.
	maxPatched = 1 << 20
	// maxLines bounds the lines of such a file.
	maxLines    = 20000
	contextSize = 3
)

// chosen are the paths to show. If there are none, all changes are shown.
type chosen []chosenPath

type chosenPath struct {
	path string
	// matches reports whether a path matches; nil for a path that is no pattern.
	matches func(string) bool
	found   bool
}

func newChosen(paths []Name) (chosen, error) {
	var all chosen
	for _, p := range paths {
		c := chosenPath{path: strings.TrimSuffix(string(p), "/")}
		if isPattern(c.path) {
			var err error
			if c.matches, err = compilePattern(c.path); err != nil {
				return nil, err
			}
		}
		all = append(all, c)
	}
	return all, nil
}

// has reports whether path is chosen, or beneath a chosen path. It is true if nothing is chosen.
func (all chosen) has(path string) bool {
	has := len(all) == 0
	for i := range all {
		c := &all[i]
		if within(c.path, path) || c.matches != nil && c.matches(path) {
			has, c.found = true, true
		}
	}
	return has
}

// missed returns an ErrNoChange for each chosen path for which has was never true.
func (all chosen) missed() (err error) {
	for _, c := range all {
		if !c.found {
			err = errors.Join(err, fmt.Errorf("%s: %w", Name(c.path), ErrNoChange))
		}
	}
	return err
}

type patcher struct {
	w        *Workspace
	out      *bufio.Writer
	terminal bool
}

// side is one side of a file's diff, in git's terms. A nil *side means that git has no file there.
type side struct {
	mode string
	text string
}

var errNoText = errors.New("no text")

// A reader returns the first length bytes of a file.
type reader func(path Name, length int64) (string, error)

func (p *patcher) change(c Change) error {
	return p.difference(c, string(c.Kind), p.readReal, p.readUpper)
}

// difference writes a change as a diff, or, if git has no form for it, as a line "# word PATH ...".
func (p *patcher) difference(c Change, word string, readBefore, readAfter reader) error {
	before, err := p.side(c, c.Before, readBefore)
	if c.hidden {
		err = errNoText
	}
	if err == nil {
		var after *side
		if after, err = p.side(c, c.After, readAfter); err == nil && (before != nil ||
			after != nil) {
			return p.diffs(c.Path, before, after)
		}
	}
	if err != nil && !errors.Is(err, errNoText) {
		return err
	}
	fmt.Fprintf(p.out, "# %s %s%s%s\n", word, c.Path, describe(" from", c.Before),
		describe(" to", c.After))
	return nil
}

func describe(word string, n *Node) string {
	switch {
	case n == nil:
		return ""
	case n.Type == File && n.SHA256 != "":
		return fmt.Sprintf("%s file %04o %d bytes sha256:%s", word, n.Mode, n.Size, n.SHA256)
	case n.Type == File:
		return fmt.Sprintf("%s file %04o %d bytes", word, n.Mode, n.Size)
	case n.Type == Link:
		return fmt.Sprintf("%s link to %s", word, n.Target)
	}
	return fmt.Sprintf("%s %s %04o", word, n.Type, n.Mode)
}

func (p *patcher) side(c Change, n *Node, read reader) (*side, error) {
	switch {
	case n == nil || n.Type == Dir:
		return nil, nil
	case n.Type == Link:
		return &side{"120000", string(n.Target)}, nil
	case n.Type != File || n.Size > maxPatched || c.Binary:
		return nil, errNoText
	}
	text, err := read(c.Path, n.Size)
	if err != nil {
		return nil, err
	}
	if strings.IndexByte(text, 0) >= 0 || strings.Count(text, "\n") > maxLines {
		return nil, errNoText
	}
	if n.Mode&0o100 != 0 {
		return &side{"100755", text}, nil
	}
	return &side{"100644", text}, nil
}

// readReal reads a real file as the caller. The error is errNoText if the caller may not.
func (p *patcher) readReal(path Name, length int64) (text string, err error) {
	text, err = doAs(p.w.meta.Caller, func() (string, error) {
		return readBelow(p.w.source, path, length)
	})
	if errors.Is(err, os.ErrPermission) || errors.Is(err, os.ErrNotExist) {
		err = errNoText
	}
	return text, err
}

// readUpper reads a file of the upper layer. The error is errNoText if the caller may not read it.
func (p *patcher) readUpper(path Name, length int64) (string, error) {
	upper, err := p.w.layer.openUpper()
	if err != nil {
		return "", err
	}
	defer upper.Close()
	dir, name, err := upper.at(path)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	if st, err := sys.LstatAt(dir, name); err != nil || !p.w.meta.Caller.readable(st) {
		return "", errors.Join(err, errNoText)
	}
	return readRegular(dir, name, length)
}

func readBelow(root *os.File, path Name, length int64) (string, error) {
	return inDir(root, path, func(dir *os.File, name string) (string, error) {
		return readRegular(dir, name, length)
	})
}

func readRegular(dir *os.File, name string, length int64) (string, error) {
	f, err := openRegular(dir, name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, length))
	return string(content), err
}

// diffs writes one diff, or two for a change between file and link, as git does.
func (p *patcher) diffs(path Name, before, after *side) error {
	if before != nil && after != nil && before.mode[:3] != after.mode[:3] {
		if err := p.diff(path, before, nil); err != nil {
			return err
		}
		return p.diff(path, nil, after)
	}
	return p.diff(path, before, after)
}

func (p *patcher) diff(path Name, before, after *side) error {
	from, to := gitName("a/"+path), gitName("b/"+path)
	fmt.Fprintf(p.out, "diff --git %s %s\n", from, to)
	var old, text string
	switch {
	case before == nil:
		fmt.Fprintf(p.out, "new file mode %s\n", after.mode)
		from, text = "/dev/null", after.text
	case after == nil:
		fmt.Fprintf(p.out, "deleted file mode %s\n", before.mode)
		to, old = "/dev/null", before.text
	default:
		if before.mode != after.mode {
			fmt.Fprintf(p.out, "old mode %s\nnew mode %s\n", before.mode, after.mode)
		}
		old, text = before.text, after.text
	}
	hunks, err := hunksBetween(old, text, p.terminal)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if len(hunks) > 0 {
		fmt.Fprintf(p.out, "--- %s\n+++ %s\n", from, to)
	}
	for _, h := range hunks {
		fmt.Fprintf(p.out, "@@ -%s +%s @@\n", hunkRange(h.From, h.FromLines),
			hunkRange(h.To, h.ToLines))
		for _, line := range h.Lines {
			p.out.WriteString(line)
			p.out.WriteByte('\n')
		}
	}
	return nil
}

// hunkRange formats the start and length of a hunk. An empty range starts at the line before.
func hunkRange(line, count int) string {
	if count == 0 {
		line--
	}
	return strconv.Itoa(max(line, 0)) + "," + strconv.Itoa(count)
}

// escapeLine escapes a line as Name.String does, but keeps tabs.
func escapeLine(text string) string {
	parts := strings.Split(text, "\t")
	for i, part := range parts {
		parts[i] = Name(part).String()
	}
	return strings.Join(parts, "\t")
}

// gitName quotes a path as git does in a patch: if needed like a C string, with bytes in octal.
func gitName(path Name) string {
	if plain(string(path)) && !strings.ContainsAny(string(path), "\" ") {
		return string(path)
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(path) {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c > '~':
			fmt.Fprintf(&b, "\\%03o", c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

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
	// Lines of the hunk. Each begins with a space, - or +, or with \ for a remark about the line
	// before. Control characters are escaped.
	Lines []string `json:"lines"`
}

// FileHunks are the hunks of one file that is text on both sides.
type FileHunks struct {
	Path  Name   `json:"path"`
	Hunks []Hunk `json:"hunks"`
}

const noNewline = `\ No newline at end of file`

// Unified returns the unified diff between two texts, "" if they are equal.
func Unified(path, from, to string) string { return udiff.Unified(path, path, from, to) }

// unified returns the hunks between two texts.
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

// hunksOf returns the hunks of a modified text file, nil for any other change.
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
	return hunksBetween(before.text, after.text, true)
}

// hunksBetween returns the hunks between two texts. escape escapes control characters. It computes
// the start in the new text itself: the library's is wrong after a hunk with several edits.
func hunksBetween(old, text string, escape bool) (out []Hunk, err error) {
	hunks, err := unified(old, text)
	more := 0
	for _, h := range hunks {
		froms, tos := lineCounts(h)
		shown := Hunk{From: h.FromLine, FromLines: froms, To: h.FromLine + more, ToLines: tos}
		for _, l := range h.Lines {
			text, complete := strings.CutSuffix(l.Content, "\n")
			if escape {
				text = escapeLine(text)
			}
			shown.Lines = append(shown.Lines, string(lineMark(l.Kind))+text)
			if !complete {
				shown.Lines = append(shown.Lines, noNewline)
			}
		}
		more += tos - froms
		out = append(out, shown)
	}
	return out, err
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

// someHunks applies only the hunks take, by number from 0, to old. It returns the result and the
// number of all hunks.
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
		b.WriteString(strings.Join(lines[at:start], ""))
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
	b.WriteString(strings.Join(lines[at:], ""))
	return b.String(), len(hunks), nil
}

// textNode returns the Node of a file with this text and mode.
func textNode(text string, mode uint32) *Node {
	return &Node{Type: File, Mode: mode, Size: int64(len(text)),
		SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(text)))}
}

// takeHunks returns the change to c's file that applies only the hunks take, and the file's new
// text. If take has all hunks, whole is true and part is c.
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
	// A change of the mode is committed with the last hunks.
	c.After = textNode(text, c.Before.Mode)
	return c, text, false, nil
}

// merge merges both sides' edits of a conflicting change, and returns the new change and text. If
// they overlap or cannot be merged, why says so.
func (d decision) merge(c Change) (merged Change, text, why string, err error) {
	if c.Kind != Modified || c.Before.Type != File || c.After.Type != File {
		return c, "", "only a file that both sides modified can be merged", nil
	}
	base, mode, ok, err := d.base(c)
	if err != nil {
		return c, "", "", err
	}
	if !ok {
		return c, "",
			"what it was when the run began was not saved, so there is nothing to merge from", nil
	}
	p := &patcher{w: d.w}
	before, after, err := p.sides(c)
	if errors.Is(err, errNoText) {
		return c, "", "it is no text, or too long to merge", nil
	}
	if err != nil {
		return c, "", "", err
	}
	text, ok = merge3(base, before.text, after.text)
	if !ok {
		return c, "", "both sides changed the same lines, or lines next to each other", nil
	}
	perm := c.After.Mode
	// The tool did not change the mode.
	if perm&0o777 == mode&0o777 {
		perm = c.Before.Mode
	}
	c.After, c.Conflict, c.Merged = textNode(text, perm), "", true
	return c, text, "", nil
}

// base returns the common base content of both sides of a change, and its mode. ok is false if it
// is not known.
func (d decision) base(c Change) (text string, mode uint32, ok bool, err error) {
	if d.into != nil {
		return d.into.baseText(c)
	}
	return d.w.home.base(c.Path, d.taken)
}

// merge3 applies the line edits from base to a and from base to b. It returns false if edits of
// both touch the same or adjacent lines. An edit that both have is applied once.
func merge3(base, a, b string) (string, bool) {
	if a == b {
		return a, true
	}
	ea, eb := lineEdits(base, a), lineEdits(base, b)
	var all []udiff.Edit
	for len(ea) > 0 || len(eb) > 0 {
		switch {
		case len(eb) == 0:
			all, ea = append(all, ea[0]), ea[1:]
		case len(ea) == 0:
			all, eb = append(all, eb[0]), eb[1:]
		case ea[0] == eb[0]:
			all, ea, eb = append(all, ea[0]), ea[1:], eb[1:]
		case ea[0].End < eb[0].Start:
			all, ea = append(all, ea[0]), ea[1:]
		case eb[0].End < ea[0].Start:
			all, eb = append(all, eb[0]), eb[1:]
		default:
			return "", false
		}
	}
	text, err := udiff.Apply(base, all)
	return text, err == nil
}

// lineEdits returns the edits from one text to another in whole lines. Adjacent edits are joined.
func lineEdits(from, to string) (out []udiff.Edit) {
	for _, e := range udiff.Lines(from, to) {
		if n := len(out); n > 0 && out[n-1].End == e.Start {
			out[n-1].End = e.End
			out[n-1].New += e.New
			continue
		}
		out = append(out, e)
	}
	return out
}
