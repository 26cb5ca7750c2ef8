package workspace

import (
	"context"
	"io"
)

// patch writes all changes as Show does.
func (w *Workspace) patch(ctx context.Context, out io.Writer, o PatchOptions) error {
	_, err := w.Show(ctx, ShowOptions{Patch: out, Options: o}, func(Change) error { return nil })
	return err
}

// discard removes the workspace of an id.
func (s *Store) discard(id string) error {
	w, err := s.Get(id)
	if err != nil {
		return err
	}
	defer w.Close()
	return w.Discard()
}
