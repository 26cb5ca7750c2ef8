package guest

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/runners"
)

// T-101: links that were there before the guest.
func TestPlantedLinks(t *testing.T) {
	plant := func(w *world) {
		w.link(w.out+"/secret", "in/abs")
		w.link("../out/secret", "in/rel")
		w.link("rel", "in/chain")
		w.link("../out", "in/dirlink")
		w.link(w.out, "in/absdir")
		w.link("../../out/secret", "in/dir/rel")
		w.link("/proc/self/environ", "in/environ")
		w.link("/proc/self/fd/0", "in/magic")
	}
	paths := []string{"abs", "rel", "chain", "dirlink/secret", "absdir/secret", "dir/rel",
		"dir/../rel", "environ",
		"dirlink/dir/secret", "./dirlink/./secret", "dirlink//secret"}
	var ops []string
	for _, p := range paths {
		ops = append(ops, "read\t"+p)
	}
	t.Run("control", func(t *testing.T) {
		w := newWorld(t)
		plant(w)
		leaks := strings.Count(strings.Join(w.stock(ops...), "\n"), canary)
		if leaks < 8 {
			t.Errorf("the engine's own mount leaks %d times; the attack does not work", leaks)
		}
	})
	for _, layout := range []runners.Layout{runners.LayoutPreopens, runners.LayoutRooted} {
		t.Run(string(layout), func(t *testing.T) {
			w := newWorld(t)
			plant(w)
			inv := w.preopens()
			inv.Layout = layout
			mine := ops
			if layout == runners.LayoutRooted {
				mine = nil
				for _, p := range paths {
					mine = append(mine, "read\tworkspace/"+p)
				}
			}
			r := run(t, inv, mine...)
			for i, line := range r.lines() {
				// EACCES (2), EPERM (63): outside the view.
				if !strings.HasPrefix(line, "63\t") && !strings.HasPrefix(line, "2\t") {
					t.Errorf("%s: %s", mine[i], line)
				}
			}
			if strings.Contains(r.stdout, "canary") || !w.untouched() {
				t.Errorf("reached the outside: %s", r.stdout)
			}
			if !r.denied("read /workspace/rel") {
				t.Errorf("no record of it: %v", r.Denied)
			}
		})
	}
}

// T-102: the guest makes the link, then does everything through it.
func TestGuestLinks(t *testing.T) {
	links := []string{"symlink\t../out/secret\tf", "symlink\t../out\td", "symlink\td\tdd",
		"symlink\tf\tff"}
	var ops []string
	for _, f := range []string{"f", "ff", "d/secret", "dd/secret", "dir/../f"} {
		for _, verb := range []string{"read", "write", "trunc", "creat", "setsize", "utimes",
			"stat", "readlink", "allocate", "fdtimes"} {
			ops = append(ops, verb+"\t"+f+"\tx")
		}
		ops = append(ops, "link\t"+f+"\tstolen-"+strings.ReplaceAll(f, "/", "_"))
	}
	for _, d := range []string{"d", "dd", "d/", "d/.", "dd/.", "d/dir", "d/./dir", "dir/../d"} {
		ops = append(ops, "list\t"+d, "creat\t"+d+"/new\tx", "excl\t"+d+"/new2\tx",
			"mkdir\t"+d+"/newdir", "stat\t"+d+"/secret", "lstat\t"+d+"/secret",
			"rename\tfile\t"+d+"/file", "rename\t"+d+"/secret\tstolen",
			"link\t"+d+"/secret\tstolen2", "link\tfile\t"+d+"/linked",
			"symlink\tx\t"+d+"/sym", "unlink\t"+d+"/secret", "rmdir\t"+d+"/dir", "readlink\t"+d+
				"/x")
	}
	t.Run("control", func(t *testing.T) {
		w := newWorld(t)
		lines := w.stock(append(links, ops...)...)
		if w.untouched() || !strings.Contains(strings.Join(lines, "\n"), canary) {
			t.Error("the engine's own mount holds; the attack does not work")
		}
	})
	w := newWorld(t)
	r := run(t, w.preopens(), append(links, ops...)...)
	if r.err != nil {
		t.Fatal(r.err)
	}
	if !w.untouched() || strings.Contains(r.stdout, "canary") {
		t.Errorf("reached the outside: %s", r.stdout)
	}
	for i, line := range r.lines()[len(links):] {
		// A link can be read, and be linked itself; a new file may stand in for it.
		own := strings.HasPrefix(ops[i], "readlink\tf") || strings.HasPrefix(ops[i], "link\tf") ||
			strings.HasPrefix(ops[i], "readlink\tdir/../f") ||
			strings.HasPrefix(ops[i], "link\tdir/../f")
		if ok(line) && !own {
			t.Errorf("%s: %s", ops[i], line)
		}
	}
}

// T-103: everything that writes, on a mount that cannot be written.
func TestReadOnlyMount(t *testing.T) {
	ops := []string{"trunc\tfile", "write\tfile\tx", "creat\tfile\tx", "creat\tnew\tx",
		"excl\tnew\tx", "setsize\tfile", "utimes\tfile",
		"lutimes\tfile", "utimes\tdir", "fdtimes\tfile", "fdtimes\tdir", "allocate\tfile",
		"mkdir\tnew", "rmdir\tdir", "unlink\tfile",
		"rename\tfile\tnew", "link\tfile\tnew", "symlink\tfile\tnew", "unlink\tfile/",
		"rename\tdir/\tnew/"}
	t.Run("control", func(t *testing.T) {
		w := newWorld(t)
		w.stockReadOnly("trunc\tfile")
		if r := run(t, w.readOnly(), "read\tfile"); r.stdout != "0\t\"\"\n" {
			t.Errorf("the engine's own read-only mount holds: %s", r.stdout)
		}
	})
	w := newWorld(t)
	r := run(t, w.readOnly(), append(ops, "read\tfile", "read\tdir/file", "list\t.")...)
	for i, op := range ops {
		line := r.lines()[i]
		want := "69\t" // EROFS
		if strings.HasPrefix(op, "setsize") || strings.HasPrefix(op, "allocate") {
			// EBADF: the descriptor was opened for reading
			want = "8\t"
		}
		if !strings.HasPrefix(line, want) {
			t.Errorf("%q: %s", op, line)
		}
	}
	if got := strings.Join(r.lines()[len(ops):], ""); got != `0	"inside"0	"inside dir"0	"`+
		"dir file"+`"` && got != `0	"inside"0	"inside dir"0	"file dir"` {
		t.Errorf("after it: %s", got)
	}
	if !r.denied("write /workspace/file") {
		t.Errorf("no record of it: %v", r.Denied)
	}
	// mkdir -p of what is there, and O_CREAT of what is there to read, are no writes.
	if r := run(t, w.readOnly(), "mkdir\tdir", "mkdir\tdir/"); r.stdout != "20\t\"\"\n20\t\"\"\n" {
		t.Errorf("mkdir of what exists: %s", r.stdout)
	}
}

// T-104: slashes and dots behind a name change nothing.
func TestTrailing(t *testing.T) {
	for _, suffix := range []string{"/", "//", "/.", "/..", "/./", "/./.", "/../", "/../in"} {
		w := newWorld(t)
		w.link("../out", "in/d")
		w.link("../out/secret", "in/f")
		var ops []string
		for _, l := range []string{"d", "f", "dir/../d"} {
			p := l + suffix
			ops = append(ops, "read\t"+p, "list\t"+p, "stat\t"+p, "creat\t"+p+"\tx", "mkdir\t"+p,
				"rmdir\t"+p, "unlink\t"+p, "utimes\t"+p,
				"rename\t"+p+"\tx", "rename\tdir\t"+p, "link\t"+p+"\tx", "link\tfile\t"+p,
				"symlink\ty\t"+p, "readlink\t"+p)
		}
		r := run(t, w.preopens(), ops...)
		for i, line := range r.lines() {
			// Link and unlink take a link itself, but not with a slash behind it.
			if ok(line) {
				t.Errorf("%q: %s", ops[i], line)
			}
		}
		if !w.untouched() {
			t.Errorf("%q reached the outside", suffix)
		}
	}
	t.Run("control", func(t *testing.T) {
		w := newWorld(t)
		w.link("../out", "in/d")
		if lines := w.stock("list\td/", "list\td/."); !ok(lines[0]) && !ok(lines[1]) {
			t.Error("the engine's own mount holds; the attack does not work")
		}
	})
}

// T-105: the other end of a link or rename has rights of its own.
func TestOtherEnd(t *testing.T) {
	w := newWorld(t)
	w.dir("ro")
	w.file("ro/file", "read only")
	// 3 is /workspace, 4 is /ro
	inv := w.preopens()
	inv.Mounts = append(inv.Mounts, runners.Mount{Path: "/ro", Source: w.path("ro")})
	ops := []string{"renameto4\tfile\tnew", "linkto4\tfile\tnew", "renamefrom4\tfile\tnew",
		"linkfrom4\tfile\tnew",
		"renameto4\tfile\tfile", "linkfrom4\tfile\tdir/x"}
	r := run(t, inv, ops...)
	for i, line := range r.lines() {
		if !strings.HasPrefix(line, "69\t") && !strings.HasPrefix(line, "75\t") {
			t.Errorf("%q: %s", ops[i], line)
		}
	}
	// The control: with rights at both ends it is another mount, still.
	inv.Mounts[1].Write = true
	if r := run(t, inv, ops[0]); r.stdout != "75\t\"\"\n" {
		t.Errorf("rename across two mounts: %s, want EXDEV", r.stdout)
	}
}

// A module whose working directory is not there is not run, in whichever layout: it would begin
// somewhere else.
func TestCwdNotThere(t *testing.T) {
	for _, layout := range []runners.Layout{runners.LayoutPreopens, runners.LayoutRooted,
		runners.LayoutWorking} {
		w := newWorld(t)
		w.file("file", "")
		w.dir("hidden/below")
		inv := w.preopens()
		inv.Layout, inv.Mounts[0].Hide = layout, []string{"hidden"}
		for dir, want := range map[string]syscall.Errno{"/workspace/none": syscall.ENOENT,
			"/workspace/file":         syscall.ENOTDIR,
			"/workspace/hidden/below": syscall.ENOENT, "/elsewhere": syscall.EACCES} {
			inv.Cwd = dir
			r := run(t, inv, "args")
			var e *runners.StartError
			if !errors.As(r.err, &e) || e.Path != dir || e.Err != want || r.stdout != "" {
				t.Errorf("%s, %s: %v, %q, want %v", layout, dir, r.err, r.stdout, want)
			}
			if a := runners.FailureAnswer(&r.Report, r.err); a.NoCwd != int(want) ||
				a.Failure == "" {
				t.Errorf("%s, %s: answer %+v", layout, dir, a)
			}
		}
	}
}

// T-109: no mounts, no files.
func TestNoMounts(t *testing.T) {
	r := run(t, runners.Invocation{Cwd: "/workspace"}, "read\tfile", "list\t.", "creat\tx\ty",
		"stat\t/", "mkdir\tx", "symlink\tx\ty", "rename\tx\ty")
	for _, line := range r.lines() {
		if !strings.HasPrefix(line, "8\t") {
			t.Errorf("%s, want EBADF", line)
		}
	}
	// The control: the same with a mount.
	w := newWorld(t)
	if r := run(t, w.preopens(), "read\tfile", "list\t."); !ok(r.lines()[0]) || !ok(r.lines()[1]) {
		t.Errorf("with a mount: %s", r.stdout)
	}
}
