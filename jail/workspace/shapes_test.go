package workspace

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jail-sandbox/jail/jail/jailtest/kernel"
)

// Directories of other shapes than a plain one: each is shadowed, committed and reverted, with all
// that is in it left as it was.
func TestShapes(t *testing.T) {
	for _, tc := range []struct {
		name  string
		shape func(t *testing.T, f *fixture)
		more  string // of the script
	}{
		{"a git worktree", func(t *testing.T, f *fixture) {
			f.write("main/x")
			f.git("main", "init", "-q")
			f.git("main", "add", "-A")
			f.git("main", "commit", "-qm", "one")
			must(t, os.Rename(filepath.Join(f.real, "main"),
				filepath.Join(filepath.Dir(f.real), "main")))
			f.git("../main", "worktree", "add", "-q", f.real+"/tree")
			f.real = filepath.Join(f.real, "tree")
		}, ""},
		{"submodules", func(t *testing.T, f *fixture) {
			f.write("../sub/y", "x")
			f.git("../sub", "init", "-q")
			f.git("../sub", "add", "-A")
			f.git("../sub", "commit", "-qm", "one")
			f.git(".", "init", "-q")
			f.git(".", "-c", "protocol.file.allow=always", "submodule", "--quiet", "add",
				filepath.Dir(f.real)+"/sub", "sub")
			f.git(".", "commit", "-qm", "one")
		}, "echo in >sub/new; "},
		{"sockets and FIFOs", func(t *testing.T, f *fixture) {
			must(t, syscall.Mkfifo(filepath.Join(f.real, "fifo"), 0o644))
			l, err := net.Listen("unix", filepath.Join(f.real, "socket"))
			must(t, err)
			t.Cleanup(func() { l.Close() })
		}, "test -p fifo; test -S socket; "},
		{"files of several users", func(t *testing.T, f *fixture) {
			f.write("a", "b/c")
			must(t, os.Chown(filepath.Join(f.real, "a"), 1000, 1000))
			f.command("chown", "-R", "2000:2000", f.real+"/b")
		}, ""},
		{"100,000 files in one directory", func(t *testing.T, f *fixture) {
			if os.Getenv("JAIL_TEST_LONG") == "" {
				t.Skip("takes a while: JAIL_TEST_LONG=1 runs it")
			}
			for i := range 100000 {
				must(t, os.WriteFile(filepath.Join(f.real, strconv.Itoa(i)), nil, 0o644))
			}
		}, "rm 77; echo x >99999; "},
		{"a path of 6,000 bytes", func(t *testing.T, f *fixture) {
			defer workIn(t, f.real)()
			for range 30 {
				name := strings.Repeat("d", 200)
				must(t, os.Mkdir(name, 0o755))
				must(t, os.Chdir(name))
			}
			must(t, os.WriteFile("deep", []byte("x\n"), 0o644))
		}, "find . -name deep -execdir sh -c 'echo more >>deep; echo y >new' ';'; "},
		{"names that are no text, and names that fold", func(t *testing.T, f *fixture) {
			f.write("a\xff\xfeb", "README", "readme", "n\nl", "-rf", "e\u0301", "\u00e9")
		}, "echo x >>\"$(printf 'a\\377\\376b')\"; echo y >ReadMe; rm -- -rf; "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t)
			f.write("f", "gone", "d/g")
			tc.shape(t, f)
			if _, err := os.Stat(filepath.Join(f.real, "f")); err != nil {
				// It has become another directory.
				f.write("f", "gone", "d/g")
			}
			f.cycle(tc.more)
		})
	}
}

// git runs git in a directory below the real one, or beside it.
func (f *fixture) git(dir string, args ...string) {
	f.t.Helper()
	cmd := exec.Command("git",
		append([]string{"-c", "user.name=a", "-c", "user.email=a@b.c"}, args...)...)
	cmd.Dir = filepath.Join(f.real, dir)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	if out, err := cmd.CombinedOutput(); err != nil {
		f.t.Fatalf("git %v: %v: %s", args, err, out)
	}
}

// cycle runs a script, reviews, commits and reverts.
func (f *fixture) cycle(more string) {
	t := f.t
	t.Helper()
	before := f.listing()
	w := f.prepareAs("w", Caller{}, 8<<20, 500)
	if a := f.run(w, order{Script: "set -e; " + more +
		"echo more >>f; rm gone; mkdir new; echo x >new/y"}); a.Script != "" {
		t.Fatalf("script: %s: %s", a.Script, a.Out)
	}
	must(t, w.Freeze())
	changes := changesOf(t, w)
	if len(changes) < 4 {
		t.Errorf("changes: %q", brief(changes))
	}
	if now := f.listing(); now != before {
		t.Fatalf("the run changed the real directory: %s", cmp.Diff(before, now))
	}
	r, err := w.Commit(t.Context(), CommitOptions{Keep: keepAll})
	must(t, err)
	if r.State != Committed || r.NotKept != "" || f.listing() == before {
		t.Fatalf("%+v", r)
	}
	_, err = w.Revert(t.Context(), RevertOptions{})
	must(t, err)
	if now := f.listing(); now != before {
		t.Errorf("reverted: %s", cmp.Diff(before, now))
	}
	must(t, w.Discard())
}

// listing describes the tree by programs that know paths of any length, without the times of
// directories and links.
func (f *fixture) listing() string {
	f.t.Helper()
	cmd := exec.Command("sh", "-c",
		`find . \( -type f -o -type p -o -type s \) -printf '%p %y %m %U %G %s %t\n' | LC_ALL=C sort; find . ! -type f -printf '%p %y %m %U %G %l\n' | LC_ALL=C sort; find . -type f -execdir cksum {} + | LC_ALL=C sort`)
	cmd.Dir = f.real
	out, err := cmd.Output()
	must(f.t, err)
	return string(out)
}

// On every file system that there is, and refused with one sentence where the kernel cannot.
func TestFileSystems(t *testing.T) {
	if !inPrivateMounts(t) {
		return
	}
	eachFileSystem(t, func(t *testing.T, d *disk) {
		d.make()
		// With the store on it, and elsewhere.
		for _, shared := range []bool{true, false} {
			f := d.fixture()
			if !shared && os.Getenv("JAIL_TEST_LONG") == "" {
				continue
			}
			if !shared {
				f = newFixture(t)
				f.real = filepath.Join(d.dir, "real")
				must(t, os.RemoveAll(f.real))
				must(t, os.Mkdir(f.real, 0o755))
			}
			f.write("f", "gone", "d/g", "l -> f")
			f.cycle("")
		}
	})
	t.Run("tmpfs", func(t *testing.T) {
		f := newFixture(t)
		must(t, syscall.Mount("none", f.real, "tmpfs", 0, "mode=755"))
		defer syscall.Unmount(f.real, syscall.MNT_DETACH)
		f.write("f", "gone", "d/g", "l -> f")
		// Where a tmpfs cannot map owners.
		if kernel.OlderThan(t, 6, 3) {
			w := f.prepareAs("w", Caller{}, 8<<20, 500)
			lower, err := w.Lower()
			must(t, err)
			defer lower.Close()
			upper, err := w.Upper()
			must(t, err)
			defer upper.Close()
			if a := f.ask(lower, upper, order{Script: "true"}); !strings.Contains(a.Err,
				"the file system of the directory cannot map owners") {
				t.Errorf("%+v", a)
			}
			return
		}
		f.cycle("")
	})
	t.Run("read-only", func(t *testing.T) {
		f := newFixture(t)
		f.write("f", "gone")
		must(t, syscall.Mount(f.real, f.real, "", syscall.MS_BIND, ""))
		defer syscall.Unmount(f.real, syscall.MNT_DETACH)
		must(t,
			syscall.Mount("", f.real, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
		before := snapshotText(f.real)
		w := f.shadow("w", "echo more >>f; rm gone")
		var failed *commitError
		if _, err := w.Commit(t.Context(), CommitOptions{}); !errors.Is(err, syscall.EROFS) ||
			!errors.As(err, &failed) || failed.undo != nil {
			t.Errorf("%v", err)
		}
		if now := snapshotText(f.real); now != before {
			t.Error(cmp.Diff(before, now))
		}
	})
	t.Run("a mount below", func(t *testing.T) {
		f := newFixture(t)
		f.write("d/")
		must(t, syscall.Mount("none", f.real+"/d", "tmpfs", 0, ""))
		defer syscall.Unmount(f.real+"/d", syscall.MNT_DETACH)
		source, err := os.Open(f.real)
		must(t, err)
		defer source.Close()
		if _, err := f.store.Prepare(Spec{ID: "w", Source: source, Bytes: 8 << 20,
			Inodes: 100}); !errors.Is(err, ErrSource) || !strings.Contains(err.Error(),
			"real/d is a mount of its own") {
			t.Errorf("%v", err)
		}
	})
}
