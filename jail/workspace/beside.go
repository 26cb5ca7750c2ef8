package workspace

import (
	"bufio"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
)

// List returns the changes of a workspace. live is as in CommitOptions.
func List(ctx context.Context, w *Workspace, live bool) (all []Change, err error) {
	for c, err := range w.changes(ctx, live) {
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// A Difference is a path that two shadows of one directory do not have alike; nil is a path that a
// shadow does not have.
type Difference struct {
	Path Name  `json:"path"`
	A    *Node `json:"a,omitempty"`
	B    *Node `json:"b,omitempty"`
}

// Differences compares two shadows of one directory by their changes. A path that only one of them
// has changed is in the other as in the directory.
func Differences(a, b []Change) (all []Difference) {
	other := map[Name]Change{}
	for _, c := range b {
		other[c.Path] = c
	}
	for _, c := range a {
		d := Difference{c.Path, c.After, c.Before}
		if o, both := other[c.Path]; both {
			d.B = o.After
			delete(other, c.Path)
		}
		if !d.A.same(d.B) {
			all = append(all, d)
		}
	}
	for _, c := range other {
		if !c.Before.same(c.After) {
			all = append(all, Difference{c.Path, c.Before, c.After})
		}
	}
	slices.SortFunc(all, func(a, b Difference) int { return comparePaths(a.Path, b.Path) })
	return all
}

// comparePaths orders paths as a walk lists them: what is in a directory comes right after the
// directory.
func comparePaths(a, b Name) int {
	key := func(n Name) string { return strings.ReplaceAll(string(n), "/", "\x00") }
	return strings.Compare(key(a), key(b))
}

// Texts are the texts of files in one shadow.
type Texts map[Name]string

// maxTexts bounds the texts of one comparison, in bytes.
const maxTexts = 16 << 20

// TextsOf reads the texts of the files among nodes, as the shadow has them. It leaves out what is no
// text, too long, or another content by now. live is as in CommitOptions.
func TextsOf(ctx context.Context, w *Workspace, live bool, nodes map[Name]*Node) (Texts, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := (opening{w}).openFor(live); err != nil {
		return nil, w.wrap("compare", err)
	}
	p := &patcher{w: w}
	if w.meta.State.recordOnly() {
		return texts(ctx, w, nodes, p.readReal)
	}
	return texts(ctx, w, nodes, func(path Name, length int64) (string, error) {
		text, err := p.readUpper(path, length)
		if missing(err) {
			return p.readReal(path, length)
		}
		return text, err
	})
}

func texts(ctx context.Context, w *Workspace, nodes map[Name]*Node, read reader) (Texts, error) {
	all, room := Texts{}, int64(maxTexts)
	for path, n := range nodes {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if n == nil || n.Type != File || n.Size > maxPatched || n.Size > room {
			continue
		}
		text, err := read(path, n.Size)
		if errors.Is(err, errNoText) {
			continue
		}
		if err != nil {
			return nil, w.wrap("compare", err)
		}
		if n.SHA256 != "" && textNode(text, 0).SHA256 != n.SHA256 {
			continue
		}
		room -= n.Size
		all[path] = text
	}
	return all, nil
}

// WriteDifferences writes differences as a patch that makes b of a.
func WriteDifferences(out io.Writer, all []Difference, a, b Texts, terminal bool) error {
	p := &patcher{out: bufio.NewWriter(out), terminal: terminal}
	for _, d := range all {
		word := string(Added)
		switch {
		case d.A != nil && d.B != nil:
			word = "differs"
		case d.B == nil:
			word = string(Deleted)
		}
		c := Change{Path: d.Path, Before: d.A, After: d.B}
		if err := p.difference(c, word, a.read, b.read); err != nil {
			return err
		}
	}
	return p.out.Flush()
}

func (t Texts) read(path Name, _ int64) (string, error) {
	text, ok := t[path]
	if !ok {
		return "", errNoText
	}
	return text, nil
}

// A Row is one path beside what several shadows made of it.
type Row struct {
	Path Name `json:"path"`
	// Cells are the changes, nil where a shadow has none.
	Cells []*Change `json:"cells"`
}

// Beside puts the changes of several shadows side by side, by path.
func Beside(shadows [][]Change) []Row {
	at := map[Name]int{}
	rows := []Row{}
	for i, changes := range shadows {
		for _, c := range changes {
			n, ok := at[c.Path]
			if !ok {
				n = len(rows)
				at[c.Path] = n
				rows = append(rows, Row{c.Path, make([]*Change, len(shadows))})
			}
			rows[n].Cells[i] = &c
		}
	}
	slices.SortFunc(rows, func(a, b Row) int { return comparePaths(a.Path, b.Path) })
	return rows
}
