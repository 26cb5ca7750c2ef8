package workspace

import (
	"bufio"
	"context"
	"io"
	"os"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// ShowOptions say what a showing has beside the changes.
type ShowOptions struct {
	// Patch gets the differences as text, as PatchOptions say.
	Patch   io.Writer
	Options PatchOptions
	// Hunks gets the hunks of each text file that was modified, after the change itself.
	Hunks func(FileHunks) error
}

// Shown is what is known of a change set at the end of a showing.
type Shown struct {
	Summary
	Digest string `json:"digest"` // of the very changes that were shown
	// Renames are hints: a deleted file whose content an added one has. At most 1,000, and none of empty files.
	Renames []Rename `json:"renames,omitempty"`
	// Classes counts the changes with a risk of each class.
	Classes map[string]int `json:"classes,omitempty"`
}

// A Rename is a hint that a file was moved.
type Rename struct {
	From Name `json:"from"`
	To   Name `json:"to"`
}

// Show is one pass over the changes: each is given to emit, in the order of Changes, and what is asked for beside them to where it belongs. What it holds in
// memory does not grow with their number, but for the names of one directory at a time and the candidates for renames, of which there are at most 10,000.
func (w *Workspace) Show(ctx context.Context, o ShowOptions, emit func(Change) error) (Shown, error) {
	d, r := newDigester(), &renames{}
	out := Shown{Classes: map[string]int{}}
	p := &patcher{w: w, terminal: o.Options.Terminal}
	if o.Patch != nil {
		p.out = bufio.NewWriterSize(o.Patch, 64<<10)
	}
	for c, err := range w.Changes(ctx) {
		if err != nil {
			return Shown{}, err
		}
		out.Summary.add(c)
		d.add(c)
		r.add(c)
		for _, risk := range c.Risks {
			out.Classes[string(risk.Class)]++
		}
		c.Scripts = p.scriptsOf(c)
		if err := emit(c); err != nil {
			return Shown{}, err
		}
		if o.Patch != nil && chosen(string(c.Path), o.Options.Paths) {
			err := p.change(c)
			if err == nil && o.Hunks != nil { // who asks for both wants to know which text belongs to which change
				err = p.out.Flush()
			}
			if err != nil {
				return Shown{}, w.wrap("patch", err)
			}
		}
		if o.Hunks != nil {
			hunks, err := p.hunksOf(c)
			if err == nil && len(hunks) > 0 {
				err = o.Hunks(FileHunks{c.Path, hunks})
			}
			if err != nil {
				return Shown{}, w.wrap("hunks", err)
			}
		}
	}
	if p.out != nil {
		if err := p.out.Flush(); err != nil {
			return Shown{}, err
		}
	}
	out.Digest = d.sum()
	var err error
	out.Renames, err = r.find(ctx, w)
	return out, w.wrap("renames", err)
}

const (
	maxRenameCandidates = 10000
	maxRenames          = 1000
	maxRenameBytes      = 256 << 20 // of deleted files that are read for it
)

// renames pairs deleted and added files with the same content.
type renames struct {
	added   map[int64]map[string]Name // by size and hash
	count   int
	deleted []Change
}

func (r *renames) add(c Change) {
	switch {
	case r.count >= maxRenameCandidates:
	case c.Kind == Added && c.After.Type == File && c.After.Size > 0 && c.After.SHA256 != "":
		if r.added == nil {
			r.added = map[int64]map[string]Name{}
		}
		if r.added[c.After.Size] == nil {
			r.added[c.After.Size] = map[string]Name{}
		}
		r.added[c.After.Size][c.After.SHA256] = c.Path
		r.count++
	case c.Kind == Deleted && c.Before.Type == File && c.Before.Size > 0:
		r.deleted = append(r.deleted, c)
		r.count++
	}
}

// find reads the deleted files that have the size of an added one, with the caller's rights.
func (r *renames) find(ctx context.Context, w *Workspace) (out []Rename, err error) {
	budget := int64(maxRenameBytes)
	for _, c := range r.deleted {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		same := r.added[c.Before.Size]
		if len(same) == 0 || c.Before.Size > budget || len(out) >= maxRenames {
			continue
		}
		budget -= c.Before.Size
		sum, err := w.hashDeleted(ctx, c)
		if err != nil {
			return nil, err
		}
		if to, ok := same[sum]; ok {
			out = append(out, Rename{c.Path, to})
			delete(same, sum)
		}
	}
	return out, nil
}

// hashDeleted hashes a real file that the shadow deleted, or returns "" where the caller cannot read it.
func (w *Workspace) hashDeleted(ctx context.Context, c Change) (sum string, err error) {
	var f *os.File
	err = w.meta.Caller.do(func() error {
		dir, name := split(string(c.Path))
		d, err := openDir(w.source, dir)
		if err != nil {
			return err
		}
		defer d.Close()
		f, err = openRegular(d, name)
		return err
	})
	if err != nil {
		return "", nil // a hint only
	}
	defer f.Close()
	if st, err := sys.Fstat(f); err != nil || st.Ino != c.seen.Ino {
		return "", err
	}
	sum, _, err = hashFile(f, c.Before.Size, ctx.Err, nil)
	return sum, err
}
