package workspace

import (
	"bufio"
	"context"
	"io"
	"os"

	"github.com/jail-sandbox/jail/jail/gitrepo"
	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// ShowOptions say what Show returns beside the changes.
type ShowOptions struct {
	// Live is as in CommitOptions.
	Live bool
	// Patch receives the differences as text, as in PatchOptions.
	Patch   io.Writer
	Options PatchOptions
	// Git explains the repositories that have changes; nil leaves that out.
	Git GitReader
	// Hunks receives the hunks of each modified text file, after the change itself.
	Hunks func(FileHunks) error
}

// Shown is the result of Show.
type Shown struct {
	Summary
	// Names this very change set in a commit.
	Digest string `json:"digest"`
	// Deleted files whose content an added one has: hints, at most 1,000.
	Renames []Rename `json:"renames,omitempty"`
	// Classes counts the changes with a risk of each class.
	Classes map[string]int `json:"classes,omitempty"`
	// Git is what changed in repositories.
	Git []gitrepo.Report `json:"git,omitempty"`
	// Damaged are files and directories that did not reach the disk completely. They are no
	// changes, and no commit takes them.
	Damaged []Name `json:"damaged,omitempty"`
}

// Rename is a hint that a file was moved.
type Rename struct {
	From Name `json:"from"`
	To   Name `json:"to"`
}

// Show is one pass over the changes: it passes each to emit, in the order of Changes, and the parts
// that the options ask for to their receivers. Its memory does not grow with the number of changes,
// except for the names of one directory at a time and at most 10,000 candidates for renames.
func (w *Workspace) Show(ctx context.Context, o ShowOptions, emit func(Change) error) (Shown,
	error) {
	d, r := newDigester(), &renames{}
	out := Shown{Classes: map[string]int{}}
	git := gitSurvey{}
	p := &patcher{w: w, terminal: o.Options.Terminal}
	if o.Patch != nil {
		p.out = bufio.NewWriterSize(o.Patch, 64<<10)
	}
	only, err := newChosen(o.Options.Paths)
	if err != nil {
		return Shown{}, err
	}
	for c, err := range w.changes(ctx, o.Live) {
		if err != nil {
			return Shown{}, err
		}
		// The digest names the whole change set.
		d.add(c)
		if !only.has(string(c.Path)) {
			continue
		}
		out.Summary.add(c)
		r.add(c)
		for _, risk := range c.Risks {
			out.Classes[string(risk.Class)]++
		}
		git.add(c)
		c.Scripts = p.scriptsOf(c)
		// A receiver can tell the text of git's own files from others by the change before it.
		if p.out != nil && c.Git != "" {
			if err := p.out.Flush(); err != nil {
				return Shown{}, err
			}
		}
		if err := emit(c); err != nil {
			return Shown{}, err
		}
		if o.Patch != nil {
			err := p.change(c)
			// A caller of both wants to know which text belongs to which change.
			if err == nil && (o.Hunks != nil || c.Git != "") {
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
	if err := only.missed(); err != nil {
		return Shown{}, err
	}
	out.Digest, out.Damaged = d.sum(), w.damaged()
	if out.Git, err = git.explain(ctx, w, o.Git); err != nil {
		return Shown{}, w.wrap("git", err)
	}
	out.Renames, err = r.find(ctx, w)
	return out, w.wrap("renames", err)
}

const (
	maxRenameCandidates = 10000
	maxRenames          = 1000
	// Bytes of deleted files that are read for it.
	maxRenameBytes = 256 << 20
)

// renames pairs deleted and added files with the same content.
type renames struct {
	// added files by size and hash.
	added   map[int64]map[string]Name
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

// find reads the deleted files with the size of an added one, with the caller's rights.
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
		sum, err := hashDeleted(ctx, w.meta.Caller, w.source, c)
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

// hashDeleted hashes a real file that the shadow deleted. It returns "" if the caller cannot read
// it.
func hashDeleted(ctx context.Context, as Caller, real *os.File, c Change) (sum string, err error) {
	var f *os.File
	err = as.do(func() error {
		dir, name := split(string(c.Path))
		d, err := openDir(real, dir)
		if err != nil {
			return err
		}
		defer d.Close()
		f, err = openRegular(d, name)
		return err
	})
	if err != nil {
		// It is only a hint.
		return "", nil
	}
	defer f.Close()
	if st, err := sys.Fstat(f); err != nil || st.Ino != c.seen.Ino {
		return "", err
	}
	sum, _, err = hashFile(f, c.Before.Size, ctx.Err, nil)
	return sum, err
}
