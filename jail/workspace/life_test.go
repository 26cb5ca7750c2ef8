package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// T-313: while something can still write, nothing is reviewed or committed.
func TestFreeze(t *testing.T) {
	f := newFixture(t)
	f.write("a")
	w := f.prepare("w")
	f.run(w, order{Script: "echo x >b"})
	upper, err := w.Upper()
	must(t, err)
	defer upper.Close()
	writer, err := sys.OpenBeneath(upper, "upper/b", os.O_WRONLY, 0)
	must(t, err)
	defer writer.Close()
	if _, err := writer.WriteString("the control: it can write\n"); err != nil {
		t.Fatal(err)
	}
	if err := w.Freeze(); !errors.Is(err, ErrActive) {
		t.Errorf("freeze with a writer: %v", err)
	}
	if _, err := w.Commit(t.Context(), CommitOptions{}); !errors.Is(err, ErrActive) {
		t.Errorf("commit before freeze: %v", err)
	}
	if _, _, err := w.Review(t.Context()); !errors.Is(err, ErrActive) {
		t.Errorf("review before freeze: %v", err)
	}
	must(t, writer.Close())
	must(t, w.Freeze())
	if _, err := sys.OpenBeneath(upper, "upper/b", os.O_WRONLY, 0); !errors.Is(err, syscall.EROFS) {
		t.Errorf("open for writing through a mount from before: %v", err)
	}
	if _, err := w.Upper(); !errors.Is(err, ErrState) {
		t.Errorf("a frozen workspace gives its upper layer away: %v", err)
	}
}

// The lock of a layer in use is the kernel's: it holds although the process that took it has let go
// of everything.
func TestActiveWhileAMountLives(t *testing.T) {
	f := newFixture(t)
	f.write("a")
	w := f.prepare("w")
	f.run(w, order{Script: "echo x >b"})
	// As a jail would hold it.
	mount, err := w.Upper()
	must(t, err)
	defer mount.Close()
	must(t, w.Close())
	other, err := Open(f.dir)
	must(t, err)
	defer other.Close()
	got, err := other.Get("w")
	must(t, err)
	defer got.Close()
	if s := got.Info().State; s != Active {
		t.Errorf("state %s", s)
	}
	if _, err := got.Commit(t.Context(), CommitOptions{}); !errors.Is(err, ErrActive) {
		t.Errorf("commit: %v", err)
	}
	must(t, mount.Close())
	waitFor(t, func() bool { must(t, got.load()); return got.Info().State == Frozen })
	// What was written before the crash is not lost.
	_, err = got.Commit(t.Context(), CommitOptions{})
	must(t, err)
	if content(t, filepath.Join(f.real, "b")) != "x\n" {
		t.Error("b")
	}
}

func TestLostWithTheHost(t *testing.T) {
	f := newFixture(t)
	w := f.prepare("w")
	f.run(w, order{Script: "echo x >b"})
	w.meta.Boot = "another boot"
	must(t, w.save(false))
	must(t, w.Close())
	var got *Workspace
	waitFor(t, func() bool {
		var err error
		got, err = f.store.Get("w")
		must(t, err)
		return got.Info().State == Frozen
	})
	defer got.Close()
	if _, _, err := got.Review(t.Context()); !errors.Is(err, errLost) {
		t.Errorf("review: %v", err)
	}
	must(t, got.Discard())
}

func TestLimitsBiteWhileWriting(t *testing.T) {
	f := newFixture(t)
	f.write("a")
	w := f.prepareAs("w", Caller{}, 4<<20, 100)
	a := f.run(w, order{Script: `head -c 8000000 /dev/zero >big; stat -c %s big; rm big
		i=0; while echo >f$i; do i=$((i+1)); done; echo files $i; df -k . | tail -1`})
	if strings.Count(a.Out, "No space left on device") < 2 || !strings.Contains(a.Out, "files 1") &&
		!strings.Contains(a.Out, "files 9") {
		t.Errorf("the tool saw: %s", a.Out)
	}
	info, err := os.Stat(filepath.Join(f.dir, "w", "upper.img"))
	must(t, err)
	if used := info.Sys().(*syscall.Stat_t).Blocks * 512; used > imageSize(4<<20, 100) {
		t.Errorf("the disk paid %d bytes", used)
	}
	must(t, w.Freeze())
}

func TestReadAccess(t *testing.T) {
	f := newFixture(t)
	f.write("a")
	source, err := os.Open(f.real)
	must(t, err)
	defer source.Close()
	lower, err := CloneLower(source)
	must(t, err)
	defer lower.Close()
	a := f.child(lower, lower,
		order{Read: true, Script: "cat a; echo x >>a; echo y >b; rm a; stat -c %u a"})
	if !strings.HasPrefix(a.Out, "a\n") || strings.Count(a.Out, "Read-only file system") != 3 ||
		!strings.HasSuffix(a.Out, "1879113728\n") {
		t.Errorf("the tool saw: %s", a.Out)
	}
}

func TestPrepareRefuses(t *testing.T) {
	f := newFixture(t)
	ok := Spec{ID: "x", Bytes: 8 << 20, Inodes: 100}
	for _, tc := range []struct {
		name string
		dir  string
		edit func(*Spec)
		want error
		says string
	}{
		{"the store inside", filepath.Dir(f.real), nil, ErrSource, "state directory"},
		{"the root", "/", nil, ErrSource, "state directory"},
		{"the store", f.dir, nil, ErrSource, "state directory"},
		{"mounts inside", "/sys", nil, ErrSource, "mount of its own"},
		{"another's", f.real, func(s *Spec) { s.Caller = Caller{UID: 1000, GID: 1000} }, ErrSource,
			"belongs to uid 0"},
		{"too large", f.real, func(s *Spec) { s.Bytes = 1 << 55 }, ErrNoSpace,
			"a shadow of 32.0 PiB"},
		{"too small", f.real, func(s *Spec) { s.Bytes = 4096 }, ErrLimits, "the least is"},
		{"no file beside the overlay's", f.real, func(s *Spec) { s.Inodes = 1 }, ErrLimits,
			"and 2 files"},
		{"no files", f.real, func(s *Spec) { s.Inodes = 0 }, ErrLimits, "the least is"},
		{"a bad id", f.real, func(s *Spec) { s.ID = "../x" }, nil, "no id"},
		{"a hidden id", f.real, func(s *Spec) { s.ID = ".x" }, nil, "no id"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			source, err := os.Open(tc.dir)
			must(t, err)
			defer source.Close()
			spec := ok
			spec.Source = source
			if tc.edit != nil {
				tc.edit(&spec)
			}
			w, err := f.store.Prepare(spec)
			if err == nil {
				w.Discard()
				t.Fatal("prepared")
			}
			if tc.want != nil && !errors.Is(err, tc.want) || !strings.Contains(err.Error(),
				tc.says) {
				t.Errorf("%v", err)
			}
			if _, err := os.Lstat(filepath.Join(f.dir, "x")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("something is left: %v", err)
			}
		})
	}
	f.prepare("twice")
	source, err := os.Open(f.real)
	must(t, err)
	defer source.Close()
	ok.Source, ok.ID = source, "twice"
	if _, err := f.store.Prepare(ok); !errors.Is(err, errExists) {
		t.Errorf("an id that is taken: %v", err)
	}
}

func TestOpenIsStrict(t *testing.T) {
	dir := t.TempDir()
	loose, link := filepath.Join(dir, "loose"), filepath.Join(dir, "link")
	must(t, os.Mkdir(loose, 0o755))
	if _, err := Open(loose); err == nil {
		t.Error("a store that others can look into was opened")
	}
	must(t, os.Chmod(loose, 0o700))
	s, err := Open(loose)
	must(t, err)
	s.Close()
	must(t, os.Symlink(loose, link))
	if _, err := Open(link); err == nil {
		t.Error("a store was opened through a link")
	}
}

// TestRecoverSweeps: what is half made goes, however young it is, unless the process that makes it
// lives.
func TestRecoverSweeps(t *testing.T) {
	f := newFixture(t)
	f.write("a")
	whole := f.prepare("whole")
	for _, name := range []string{"half", "making"} {
		must(t, os.Mkdir(filepath.Join(f.dir, name), 0o700))
		must(t, os.WriteFile(filepath.Join(f.dir, name, "upper.img"), nil, 0o600))
	}
	must(t, os.WriteFile(filepath.Join(f.dir, ".template-exact-1-1.img.1.x"), nil, 0o600))
	maker, err := os.Open(filepath.Join(f.dir, "making"))
	must(t, err)
	must(t, sys.Lock(maker, true))
	sweep := func(want map[string]bool) {
		t.Helper()
		if _, err := f.store.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, there := range want {
			if _, err := os.Stat(filepath.Join(f.dir, name)); (err == nil) != there {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	sweep(map[string]bool{"half": false, "making": true, "whole": true,
		".template-exact-1-1.img.1.x": false})
	must(t, maker.Close())
	sweep(map[string]bool{"making": false, "whole": true})
	must(t, whole.Discard())
}

// TestSweepBesidePrepare: nothing that is being made or discarded is swept, by whatever store.
func TestSweepBesidePrepare(t *testing.T) {
	f := newFixture(t)
	f.write("a")
	other, err := Open(f.dir)
	must(t, err)
	defer other.Close()
	stop, swept := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				swept <- nil
				return
			default:
			}
			if err := other.Sweep(); err != nil {
				swept <- err
				return
			}
		}
	}()
	for range 20 {
		must(t, f.prepare("one").Discard())
	}
	close(stop)
	must(t, <-swept)
}

// A daemon whose process keeps nothing open leaves nothing behind: no descriptor, no loop device.
func TestNothingIsLeftOpen(t *testing.T) {
	f := newFixture(t)
	f.write("a", "d/x")
	once := func(id string) {
		w := f.shadow(id, "echo x >>a; rm -r d; mkdir n-$$; echo y >n-$$/f")
		_, _, err := w.Review(t.Context())
		must(t, err)
		_, err = w.Commit(t.Context(), CommitOptions{})
		must(t, err)
		must(t, w.Close())
	}
	once("first")
	before := openFiles(t)
	for _, id := range []string{"a", "b", "c"} {
		f.write("d/x")
		once(id)
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(fds)
}
