package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// T-324: a directory that is neither at its path nor found by its handle keeps a commit that was
// cut off as it is, and says so, until it is back or somebody gives the commit up.
func TestLostDirectory(t *testing.T) {
	for _, tc := range []struct {
		name, moves, to, says string
	}{
		{"a directory", "d", "../out", "directory d "},
		{"a directory above one", "p", "p2", "directory p/q "},
		{"the real directory", "../real", "../elsewhere", "the directory itself"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newMoverBed(t)
			store := b.f.store
			store.noHandles = true
			points := b.points(t, "commit")
			b.crash(t, "commit", points/2)
			must(t, os.Rename(b.f.at(tc.moves), b.f.at(tc.to)))
			// It is the same for the next daemon.
			for range 2 {
				settled, err := store.Recover(t.Context())
				must(t, b.w.load())
				info := b.w.Info()
				if len(settled) > 0 || !errors.Is(err, ErrIncomplete) || info.State != Committing ||
					!strings.Contains(info.Stuck, tc.says) {
					t.Fatalf("settled %+v, error %v, state %s: %s", settled, err, info.State,
						info.Stuck)
				}
			}
			if err := b.act(t, "commit"); !errors.Is(err, ErrState) {
				t.Errorf("another commit: %v", err)
			}
			if err := store.discard("w"); !errors.Is(err, ErrState) {
				t.Errorf("discard: %v", err)
			}
			must(t, os.Rename(b.f.at(tc.to), b.f.at(tc.moves)))
			settled, err := store.Recover(t.Context())
			must(t, errors.Join(err, b.w.load()))
			if len(settled) != 1 || settled[0].Done || settled[0].Left != nil ||
				b.w.Info().Stuck != "" || b.w.Info().State != Frozen {
				t.Errorf("when it is back: %+v, %+v", settled, b.w.Info())
			}
			b.is(t, "when it is back", b.before)
		})
	}
}

// The copy of a directory that a move to another file system makes is another directory: its handle
// says so, as far as there is one.
func TestLostToAnotherFileSystem(t *testing.T) {
	b := newMoverBed(t)
	b.crash(t, "commit", b.points(t, "commit")/2)
	elsewhere := t.TempDir()
	b.f.command("mv", b.f.at("d"), elsewhere)
	settled, err := b.f.store.Recover(t.Context())
	must(t, b.w.load())
	if len(settled) > 0 || !errors.Is(err, ErrIncomplete) || !strings.Contains(b.w.Info().Stuck,
		"directory d ") {
		t.Fatalf("settled %+v, %v, %s", settled, err, b.w.Info().Stuck)
	}
	torn := snapshotText(b.f.real)
	refused := errors.New("no record")
	if err := b.w.GiveUp(func(string) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("without a record: %v", err)
	}
	var left string
	must(t, b.w.GiveUp(func(text string) error { left = text; return nil }))
	if !strings.Contains(left, "directory d ") || !strings.Contains(left, ".jail-") {
		t.Errorf("the record says: %s", left)
	}
	b.is(t, "given up", torn)
	if _, err := b.f.store.Get("w"); !errors.Is(err, ErrNotFound) {
		t.Errorf("given up, and still there: %v", err)
	}
}

func TestGiveUpOnlyWhatIsCutOff(t *testing.T) {
	f := newFixture(t)
	f.write("a")
	w := f.shadow("w", "echo x >>a")
	if err := w.GiveUp(func(string) error { t.Error("a record"); return nil }); !errors.Is(err,
		ErrState) {
		t.Errorf("%v", err)
	}
	_, err := w.Commit(t.Context(), CommitOptions{})
	must(t, err)
}

// What somebody does to the very names that a commit changes stays, with what was there before
// beside it, under no name of ours, and the error says so.
func TestForeignWhileCommitted(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(f *fixture) error
		says string
		want map[string]string // afterwards
	}{
		{"another file in the place of a new content", func(f *fixture) error {
			return errors.Join(os.WriteFile(f.at("mine"), []byte("mine"), 0o644),
				os.Rename(f.at("mine"), f.at("d/a")))
		}, "d/a: left alone, since it was changed meanwhile; what was there is d/a.orig",
			map[string]string{"d/a": "mine", "d/a.orig": "d/a\n"}},
		{"and that name is taken", func(f *fixture) error {
			return errors.Join(os.WriteFile(f.at("d/a.orig"), []byte("first"), 0o644),
				os.WriteFile(f.at("mine"), []byte("mine"), 0o644), os.Rename(f.at("mine"),
					f.at("d/a")))
		}, "d/a.orig-2", map[string]string{"d/a": "mine", "d/a.orig": "first",
			"d/a.orig-2": "d/a\n"}},
		{"a new content is written to", func(f *fixture) error {
			return appendTo(f.at("d/a"), "more")
		},
			"what was there is d/a.orig", map[string]string{"d/a": "d/a\ntool\nmore",
				"d/a.orig": "d/a\n"}},
		{"a new file is written to", func(f *fixture) error {
			return appendTo(f.at("d/new/f"), "more")
		},
			"d/new/f: left alone", map[string]string{"d/new/f": "n\nmore"}},
		{"a new content is moved", func(f *fixture) error {
			return os.Rename(f.at("d/a"), f.at("d/taken"))
		},
			"d/a: left alone, since it was moved or removed meanwhile",
			map[string]string{"d/a": "d/a\n", "d/taken": "d/a\ntool\n"}},
		{"a new file is moved", func(f *fixture) error {
			return os.Rename(f.at("d/new/f"), f.at("taken"))
		},
			"d/new/f: left alone, since it was moved, removed or written to meanwhile",
			map[string]string{"taken": "n\n"}},
		{"something in the place of what went",
			func(f *fixture) error { return os.WriteFile(f.at("d/gone"), []byte("mine"), 0o644) },
			"what was there is d/gone.orig", map[string]string{"d/gone": "mine",
				"d/gone.orig": "d/gone\n"}},
		{"a directory in the place of one that went",
			func(f *fixture) error { return os.Mkdir(f.at("d/old"), 0o755) },
			"what was there is d/old.orig", map[string]string{"d/old.orig/x": "d/old/x\n",
				"d/old.orig/y/z": "d/old/y/z\n"}},
		{"something in a new directory",
			func(f *fixture) error {
				return os.WriteFile(f.at("d/new/mine"), []byte("mine"), 0o644)
			},
			"d/new: left alone", map[string]string{"d/new/mine": "mine"}},
		{"a directory goes with all that is in it",
			func(f *fixture) error { return os.RemoveAll(f.at("p")) },
			"p/q: left alone, since it was removed meanwhile", map[string]string{"d/a": "d/a\n"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newMoverBed(t)
			b.f.store.fault = func(point string) error {
				if !strings.HasPrefix(point, "done") {
					return nil
				}
				must(t, tc.do(b.f))
				return syscall.EIO
			}
			_, err := b.w.Commit(t.Context(), CommitOptions{})
			b.f.store.fault = nil
			failed := (*commitError)(nil)
			if !errors.As(err, &failed) || !errors.Is(failed.undo, ErrIncomplete) ||
				!strings.Contains(err.Error(), tc.says) {
				t.Errorf("commit: %v", err)
			}
			for path, want := range tc.want {
				if got := content(t, b.f.at(path)); got != want {
					t.Errorf("%s holds %q, want %q", path, got, want)
				}
			}
			if now := snapshotText(b.f.real); strings.Contains(now, ".jail-") {
				t.Errorf("names of ours are left:\n%s", now)
			}
			if s := b.w.Info().State; s != Frozen {
				t.Errorf("state %s", s)
			}
		})
	}
}

func appendTo(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// The same after a crash: the record of the recovery has it.
func TestForeignWhileCutOff(t *testing.T) {
	b := newMoverBed(t)
	b.f.store.fault = func(point string) error {
		if strings.HasPrefix(point, "done") {
			panic(errCrash)
		}
		return nil
	}
	func() {
		defer func() { recover() }()
		b.act(t, "commit")
	}()
	b.f.store.fault = nil
	must(t, os.Remove(b.f.at("d/a")))
	must(t, os.WriteFile(b.f.at("d/a"), []byte("mine"), 0o644))
	settled, err := b.f.store.Recover(t.Context())
	must(t, err)
	if len(settled) != 1 || len(settled[0].Left) != 1 || !strings.Contains(settled[0].Left[0],
		"what was there is d/a.orig") {
		t.Errorf("%+v", settled)
	}
	if got := content(t, b.f.at("d/a")) + content(t, b.f.at("d/a.orig")); got != "mined/a\n" {
		t.Errorf("%q", got)
	}
}

// A commit that has no descriptor for each directory that it changes is refused before it changes
// anything.
func TestMoreDirectoriesThanDescriptors(t *testing.T) {
	f := newFixture(t)
	for i := range 120 {
		f.write(fmt.Sprintf("d%d/f", i))
	}
	before := snapshotText(f.real)
	w := f.shadow("w", "for d in d*; do echo x >>$d/f; mkdir $d/new; done")
	_, _, err := w.Review(t.Context())
	must(t, err)
	var old syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old))
	// for what is there not, nor for what comes, nor to spare
	for _, room := range []int{60, 180, 250} {
		must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE,
			&syscall.Rlimit{Cur: uint64(openFiles(t) + room), Max: old.Max}))
		_, err = w.Commit(t.Context(), CommitOptions{})
		must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old))
		if !errors.Is(err, ErrManyDirs) || !strings.Contains(err.Error(), "241 directories") ||
			w.Info().State != Frozen {
			t.Errorf("%d descriptors: %v, state %s", room, err, w.Info().State)
		}
		if now := snapshotText(f.real); now != before {
			t.Fatalf("something was written:\n%s", now)
		}
		if _, err := os.Lstat(filepath.Join(f.dir, "w", journalName)); !errors.Is(err,
			os.ErrNotExist) {
			t.Errorf("a journal was begun: %v", err)
		}
	}
	files := openFiles(t)
	_, err = w.Commit(t.Context(), CommitOptions{})
	must(t, err)
	if now := openFiles(t); now > files {
		t.Errorf("%d descriptors before, %d after", files, now)
	}
}
