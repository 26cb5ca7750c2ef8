package workspace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// A merge needs three contents: the shadow's, the present real one, and the one with which the tool
// started. The last exists only in the real directory, until somebody changes it there. So at the
// end of a run a kept workspace saves the real content of the text files that the tool modified, if
// it is still what it was at the beginning. Files that the host changed before, and files that are
// no text, are not merged.
const (
	maxBaseBytes = 16 << 20
	maxBaseFiles = 5000
	baseIndex    = "base.json"
	baseContent  = "base.dat"
)

type baseFile struct {
	Path   Name   `json:"path"`
	Offset int64  `json:"offset"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	Mode   uint32 `json:"mode"`
}

// basis lists the changes of a review whose base a merge could need; see save.
type basis struct {
	changes []Change
	bytes   int64
}

// add notes a change whose base could be saved.
func (b *basis) add(c Change) {
	if c.Kind != Modified || c.Binary || c.Conflict != "" || c.Before.SHA256 == "" ||
		c.Before.Size > maxPatched || len(b.changes) >= maxBaseFiles {
		return
	}
	if b.bytes += c.Before.Size; b.bytes <= maxBaseBytes {
		b.changes = append(b.changes, c)
	}
}

// save writes the bases that the last review of w noted.
func (b *basis) save(w *Workspace) error {
	if len(b.changes) == 0 || w.source == nil {
		return nil
	}
	f, err := sys.OpenBeneath(w.home.dir, baseContent, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	var index []baseFile
	at := int64(0)
	p := &patcher{w: w}
	for _, c := range b.changes {
		text, err := p.readReal(c.Path, c.Before.Size)
		if errors.Is(err, errNoText) {
			continue
		}
		if err != nil {
			return err
		}
		if n := textNode(text, c.Before.Mode); n.SHA256 != c.Before.SHA256 {
			// The host has just changed it.
			continue
		}
		if _, err := f.WriteAt([]byte(text), at); err != nil {
			return err
		}
		index = append(index,
			baseFile{c.Path, at, int64(len(text)), c.Before.SHA256, c.Before.Mode})
		at += int64(len(text))
	}
	return errors.Join(f.Sync(), w.home.writeJSON(baseIndex, index, true))
}

// base returns the saved content with which the tool started.
func (home folder) base(path Name) (text string, mode uint32, ok bool, err error) {
	f, err := sys.OpenBeneath(home.dir, baseIndex, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "", 0, false, nil
	}
	if err != nil {
		return "", 0, false, err
	}
	defer f.Close()
	var index []baseFile
	if err := json.NewDecoder(f).Decode(&index); err != nil {
		return "", 0, false, fmt.Errorf("%s: %w", baseIndex, err)
	}
	for _, b := range index {
		if b.Path != path {
			continue
		}
		d, err := sys.OpenBeneath(home.dir, baseContent, os.O_RDONLY, 0)
		if err != nil {
			return "", 0, false, err
		}
		defer d.Close()
		content, err := io.ReadAll(io.NewSectionReader(d, b.Offset, b.Size))
		if err == nil && textNode(string(content), 0).SHA256 != b.SHA256 {
			err = fmt.Errorf("%s: the saved content of %s is not what it was", baseContent, path)
		}
		return string(content), b.Mode, err == nil, err
	}
	return "", 0, false, nil
}

// merge turns a conflicting change into one with both sides' changes, if they do not overlap. why
// says why they cannot be merged.
func (d decision) merge(c Change) (merged Change, text, why string, err error) {
	if c.Kind != Modified || c.Before.Type != File || c.After.Type != File {
		return c, "", "only a file that both sides modified can be merged", nil
	}
	base, mode, ok, err := d.w.home.base(c.Path)
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
	// The tool left it alone.
	if perm&0o777 == mode&0o777 {
		perm = c.Before.Mode
	}
	c.After, c.Conflict, c.Merged = textNode(text, perm), "", true
	return c, text, "", nil
}

// merge3 applies the edits from base to each of two texts, if no line of base is in or beside edits
// of both. An edit that both make is made once.
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

// lineEdits returns the edits from one text to another in whole lines, with adjacent ones joined.
func lineEdits(from, to string) []udiff.Edit {
	hunks, err := udiff.ToUnifiedDiff("", "", from, udiff.Lines(from, to), 0)
	if err != nil {
		// The edits are the library's own.
		panic(err)
	}
	starts := []int{0}
	for _, l := range strings.SplitAfter(from, "\n") {
		starts = append(starts, starts[len(starts)-1]+len(l))
	}
	var out []udiff.Edit
	for _, h := range hunks.Hunks {
		froms, _ := lineCounts(h)
		first := min(max(h.FromLine-1, 0), len(starts)-1)
		e := udiff.Edit{Start: starts[first], End: starts[min(first+froms, len(starts)-1)]}
		var b strings.Builder
		for _, l := range h.Lines {
			if l.Kind == udiff.Insert {
				b.WriteString(l.Content)
			}
		}
		e.New = b.String()
		if n := len(out); n > 0 && out[n-1].End == e.Start {
			out[n-1].End = e.End
			out[n-1].New += e.New
			continue
		}
		out = append(out, e)
	}
	return out
}
