package shadows

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// still calls f with the shadow of id while nothing writes to the shadow: with that of a run or
// session that lives while its processes are stopped (live is true then), with any other as it is
// kept.
func (s *Store) still(id string, kept *workspace.Workspace,
	f func(w *workspace.Workspace, live bool) error) error {
	r := s.o.Live(id)
	if r != nil {
		ok, err := r.Paused(func(w *workspace.Workspace) error { return f(w, true) })
		if ok {
			return err
		}
	}
	if !written(kept) {
		return f(kept, false)
	}
	if r == nil {
		return elsewhere(id)
	}
	return problem.New(problem.Busy, "run %s is just starting or ending", id).
		WithCause(workspace.ErrActive).WithHint("try again")
}

// elsewhere returns the error for a shadow that a jail writes to, but none of this daemon's.
func elsewhere(id string) error {
	return problem.New(problem.Busy, "run %s is another jaild's, or its jail is just ending", id).
		WithCause(workspace.ErrActive).WithHint("try again when it has ended")
}

// A shownPart is one thing that a showing passes on. One of the fields is set. The names are
// exported for gob.
type shownPart struct {
	Change *workspace.Change
	Patch  []byte
	Hunks  *workspace.FileHunks
}

// showLive shows a live shadow. What is shown is collected first and passed on when the processes
// run again: a caller that reads slowly must not keep them stopped.
func (s *Store) showLive(ctx context.Context, w *workspace.Workspace, id string,
	o workspace.ShowOptions, emit func(workspace.Change) error) (workspace.Shown, error) {
	file, err := os.CreateTemp(filepath.Dir(s.o.Terms), ".review-")
	if err != nil {
		return workspace.Shown{}, problem.New(problem.Failed, "%w", err)
	}
	defer file.Close()
	// The descriptor is enough, and leaves nothing behind if the daemon is killed.
	if err := os.Remove(file.Name()); err != nil {
		return workspace.Shown{}, problem.New(problem.Failed, "%w", err)
	}
	var shown workspace.Shown
	err = s.still(id, w, func(w *workspace.Workspace, live bool) error {
		// From the beginning, and through a buffer that takes many parts.
		buffer := bufio.NewWriterSize(file, 1<<20)
		out := gob.NewEncoder(buffer)
		spool := workspace.ShowOptions{Options: o.Options, Git: o.Git, Live: live}
		if o.Patch != nil {
			spool.Patch = patchSpool{out}
		}
		if o.Hunks != nil {
			spool.Hunks = func(h workspace.FileHunks) error {
				return out.Encode(shownPart{Hunks: &h})
			}
		}
		var err error
		shown, err = w.Show(ctx, spool, func(c workspace.Change) error {
			return out.Encode(shownPart{Change: &c})
		})
		return errors.Join(err, buffer.Flush())
	})
	if known := (*problem.Error)(nil); errors.Is(err, workspace.ErrActive) &&
		!errors.As(err, &known) {
		err = reviewError(id, err)
	}
	if err != nil {
		return workspace.Shown{}, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return workspace.Shown{}, problem.New(problem.Failed, "%w", err)
	}
	return shown, passOn(gob.NewDecoder(bufio.NewReader(file)), o, emit)
}

// passOn passes spooled parts to the receivers of a showing.
func passOn(in *gob.Decoder, o workspace.ShowOptions, emit func(workspace.Change) error) error {
	for {
		var p shownPart
		err := in.Decode(&p)
		if errors.Is(err, io.EOF) {
			return nil
		}
		switch {
		case err != nil:
			return problem.New(problem.Failed, "read the review again: %w", err)
		case p.Change != nil:
			err = emit(*p.Change)
		case p.Hunks != nil:
			err = o.Hunks(*p.Hunks)
		default:
			_, err = o.Patch.Write(p.Patch)
		}
		if err != nil {
			return err
		}
	}
}

// patchSpool spools the differences as text.
type patchSpool struct{ out *gob.Encoder }

func (p patchSpool) Write(text []byte) (int, error) {
	if err := p.out.Encode(shownPart{Patch: text}); err != nil {
		return 0, err
	}
	return len(text), nil
}
