package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDiscardPaths: what is discarded of a shadow is no change any more, here and in a later
// process, and no commit takes it.
func TestDiscardPaths(t *testing.T) {
	f := newFixture(t)
	f.write("edit", "keep", "gone/a", "gone/b", "gone/c/d", "swap/a", "swap/b", "opaque/a")
	w := f.shadow("w", `set -e; echo more >>edit; echo more >>keep; mkdir new; echo n >new/f; echo n >new/g; rm -r gone
		rm -r swap; echo file >swap; rm -r opaque; mkdir opaque; echo n >opaque/n; mkdir -p .git/objects; echo o >.git/objects/o`)
	if _, _, err := w.DiscardPaths(t.Context(), []Name{"nothing"}, false, nil); !errors.Is(err,
		ErrNoChange) {
		t.Errorf("a path without a change: %v", err)
	}
	if _, _, err := w.DiscardPaths(t.Context(), []Name{".git/objects"}, false, nil); !errors.Is(err,
		ErrState) {
		t.Errorf("the objects of a repository: %v", err)
	}
	refuse := errors.New("no record")
	if _, _, err := w.DiscardPaths(t.Context(), []Name{"edit"}, false,
		func(_, _ Summary) error { return refuse }); !errors.Is(err, refuse) {
		t.Errorf("without a record: %v", err)
	}
	before := brief(changesOf(t, w))
	gone, left, err := w.DiscardPaths(t.Context(), []Name{"edit", "new/g*", "gone/a", "swap/a",
		"opaque/a", ".git"}, false, func(_, _ Summary) error { return nil })
	must(t, err)
	want := []string{"deleted gone/b", "deleted gone/c", "deleted gone/c/d", "modified keep",
		"added new", "added new/f", "added opaque/n"}
	if diff := cmp.Diff(want, brief(changesOf(t, w))); diff != "" {
		t.Error(diff)
	}
	if gone.Total()+left.Total() != len(before) || left.Total() != len(want) {
		t.Errorf("gone %+v and left %+v, of %d", gone, left, len(before))
	}
	must(t, w.Keep())
	must(t, w.Close())
	again, err := f.store.Get("w")
	must(t, err)
	defer again.Close()
	if diff := cmp.Diff(want, brief(changesOf(t, again))); diff != "" {
		t.Errorf("a later process: %s", diff)
	}
	_, err = again.Commit(t.Context(), CommitOptions{})
	must(t, err)
	for name, text := range map[string]string{"edit": "edit\n", "keep": "keep\nmore\n",
		"gone/a": "gone/a\n", "swap/a": "swap/a\n", "swap/b": "swap/b\n",
		"opaque/a": "opaque/a\n"} {
		if got, err := os.ReadFile(filepath.Join(f.real, name)); err != nil || string(got) != text {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(f.real, "gone/b")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was not discarded is still there: %v", err)
	}
	if _, _, err := again.DiscardPaths(t.Context(), []Name{"keep"}, false, nil); !errors.Is(err,
		ErrState) {
		t.Errorf("of a shadow that was committed: %v", err)
	}
}
