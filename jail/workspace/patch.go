package workspace

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// PatchOptions say how a patch is written: unified diffs in the format of git. Text of up to 1 MiB
// a file is written as hunks that git apply takes. Changes that the format cannot express
// (directories, special files, binary and large content) are lines that begin with '#', which git
// apply skips. Content that the caller cannot read is not shown. Nothing is executed.
type PatchOptions struct {
	// Terminal also escapes control characters of the content, reversibly. Without it the content
	// is as it is in the files, for git apply.
	Terminal bool
	// Paths are the paths to show, each with everything beneath it; nil shows all. A path that has
	// a *, ? or [ is a pattern as well, as in CommitOptions. A commit takes it for a pattern only
	// if no change has that name, which a diff learns too late: it shows changes while it finds
	// them.
	Paths []Name
}

const (
	// Bytes of a file whose lines are compared; larger files are shown by size and hash.
	maxPatched = 1 << 20
	// Lines of such a file.
	maxLines    = 20000
	contextSize = 3
)

// chosen are the paths that somebody asked for.
type chosen []chosenPath

type chosenPath struct {
	path string
	// Of a path that may be a pattern.
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

// has reports whether path is one of those asked for, or beneath one. If nothing was asked for, all
// are.
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

// missed returns an error for each path that no change had.
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

// side is one side of a file's diff, nil if git has nothing on that side.
type side struct {
	mode string
	text string
}

var errNoText = errors.New("no text")

// A reader returns the content of a file; length bounds it.
type reader func(path Name, length int64) (string, error)

func (p *patcher) change(c Change) error {
	return p.difference(c, string(c.Kind), p.readReal, p.readUpper)
}

// difference writes a change as a diff, or where git has none as a line that begins with word.
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

// readReal reads a real file with the caller's rights.
func (p *patcher) readReal(path Name, length int64) (text string, err error) {
	as := p.w.meta.Caller
	err = as.do(func() error {
		text, err = readBelow(p.w.source, path, length)
		return err
	})
	if errors.Is(err, os.ErrPermission) || errors.Is(err, os.ErrNotExist) {
		err = errNoText
	}
	return text, err
}

// readUpper reads a file of the upper layer if the caller could.
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
	dir, name := split(string(path))
	d, err := openDir(root, dir)
	if err != nil {
		return "", err
	}
	defer d.Close()
	return readRegular(d, name, length)
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

// diffs writes one diff, or for a change of type two, since git has no single one.
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
	hunks, err := unified(old, text)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if len(hunks) > 0 {
		fmt.Fprintf(p.out, "--- %s\n+++ %s\n", from, to)
	}
	// more is the number of lines that the hunks so far added.
	more := 0
	for _, h := range hunks {
		more += p.hunk(h, h.FromLine+more)
	}
	return nil
}

// hunk writes a hunk. The library's own start on the new side is wrong after a hunk with several
// edits.
func (p *patcher) hunk(h *udiff.Hunk, toLine int) (more int) {
	froms, tos := lineCounts(h)
	fmt.Fprintf(p.out, "@@ -%s +%s @@\n", hunkRange(h.FromLine, froms), hunkRange(toLine, tos))
	for _, l := range h.Lines {
		text, complete := strings.CutSuffix(l.Content, "\n")
		if p.terminal {
			text = escapeLine(text)
		}
		p.out.WriteByte(lineMark(l.Kind))
		p.out.WriteString(text)
		p.out.WriteByte('\n')
		if !complete {
			p.out.WriteString(noNewline + "\n")
		}
	}
	return tos - froms
}

// hunkRange formats the start and the length of a hunk; an empty one starts after the line before.
func hunkRange(line, count int) string {
	if count == 0 {
		line--
	}
	return strconv.Itoa(max(line, 0)) + "," + strconv.Itoa(count)
}

// escapeLine escapes as Name does, except tabs.
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
