package workspace

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// outside makes a directory beside the real one with a file that no commit may touch.
func (f *fixture) outside() (dir, canary string) {
	f.t.Helper()
	dir = filepath.Join(filepath.Dir(f.real), "outside")
	must(f.t, os.Mkdir(dir, 0o777))
	canary = filepath.Join(dir, "canary")
	must(f.t, os.WriteFile(canary, []byte("untouched"), 0o666))
	return dir, canary
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return string(b)
}

// naiveCommit is what a commit must not be: it copies what was added and modified by joined names,
// in place.
func (f *fixture) naiveCommit(t *testing.T, w *Workspace) {
	t.Helper()
	for _, c := range changesOf(t, w) {
		if c.After == nil || c.After.Type != File {
			continue
		}
		target := filepath.Join(f.real, string(c.Path))
		file, err := os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_TRUNC,
			os.FileMode(c.After.Mode&0o7777))
		if err == nil {
			file.WriteString("pwned")
			file.Close()
		}
	}
}

// T-302: a later file goes through a link that was there, or that came meanwhile.
func TestCommitFollowsNoLink(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before func(f *fixture, outside string)
		script string
		swap   func(f *fixture, outside string)
	}{
		{"a directory in place of a real link", func(f *fixture, o string) {
			f.write("lib -> " + o)
		},
			`rm lib; mkdir lib; echo evil >lib/canary`, nil},
		{"a file in place of a real link", func(f *fixture, o string) {
			f.write("lib -> " + o + "/canary")
		},
			`rm lib; echo evil >lib`, nil},
		{"a directory became a link meanwhile", func(f *fixture, o string) { f.write("d/canary") },
			`echo evil >d/canary`, func(f *fixture, o string) {
				must(f.t, os.RemoveAll(filepath.Join(f.real, "d")))
				f.write("d -> " + o)
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t)
			outside, canary := f.outside()
			tc.before(f, outside)
			w := f.shadow("w", tc.script)
			if tc.swap != nil {
				tc.swap(f, outside)
			}
			_, err := w.Commit(t.Context(), CommitOptions{})
			if tc.swap == nil {
				must(t, err)
			} else if !errors.Is(err, ErrConflict) {
				t.Errorf("commit: %v", err)
			}
			if got := content(t, canary); got != "untouched" {
				t.Fatalf("the canary holds %q", got)
			}
		})
		t.Run("control: "+tc.name, func(t *testing.T) {
			f := newFixture(t)
			outside, canary := f.outside()
			tc.before(f, outside)
			w := f.shadow("w", tc.script)
			if tc.swap != nil {
				tc.swap(f, outside)
			}
			f.naiveCommit(t, w)
			if got := content(t, canary); got != "pwned" {
				t.Fatalf("the attack does not work at all: the canary holds %q", got)
			}
		})
	}
}

// T-321: a directory is exchanged for a link while the commit runs, before each of its actions in
// turn.
func TestCommitRacedBySwaps(t *testing.T) {
	for n := 0; ; n++ {
		f := newFixture(t)
		outside, canary := f.outside()
		f.write("d/e/canary", "d/e/other")
		w := f.shadow("w",
			`echo evil >d/e/canary; echo new >d/e/new; rm d/e/other; mkdir d/e/sub; echo x >d/e/sub/x`)
		swapped, left := false, n
		f.store.fault = func(string) error {
			if left == 0 {
				must(t, os.Rename(filepath.Join(f.real, "d/e"), filepath.Join(f.real, "moved")))
				must(t, os.Symlink(outside, filepath.Join(f.real, "d/e")))
				swapped = true
			}
			left--
			return nil
		}
		_, err := w.Commit(t.Context(), CommitOptions{})
		f.store.fault = nil
		if got := content(t, canary); got != "untouched" {
			t.Fatalf("swap at %d: the canary holds %q", n, got)
		}
		if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
			t.Fatalf("swap at %d: outside has %v (%v)", n, entries, err)
		}
		if !swapped {
			must(t, err)
			return
		}
	}
}

// T-303: the real file has another name, outside.
func TestCommitLeavesOtherNamesAlone(t *testing.T) {
	run := func(t *testing.T, commit func(f *fixture, w *Workspace)) string {
		f := newFixture(t)
		_, canary := f.outside()
		must(t, os.Link(canary, filepath.Join(f.real, "a")))
		must(t, os.Link(canary, filepath.Join(f.real, "b")))
		w := f.shadow("w", `echo evil >a; chmod 755 b; ln a c`)
		commit(f, w)
		info, err := os.Stat(canary)
		must(t, err)
		return fmt.Sprintf("%s %04o", content(t, canary), info.Mode().Perm())
	}
	umask := syscall.Umask(0)
	defer syscall.Umask(umask)
	got := run(t, func(f *fixture, w *Workspace) {
		_, err := w.Commit(t.Context(), CommitOptions{})
		must(t, err)
		if got := content(t, filepath.Join(f.real, "a")) + content(t,
			filepath.Join(f.real, "c")); got != "evil\nevil\n" {
			t.Errorf("committed %q", got)
		}
		if info, err := os.Stat(filepath.Join(f.real, "b")); err != nil ||
			info.Mode().Perm() != 0o755 {
			t.Errorf("b: %v %v", info, err)
		}
	})
	if got != "untouched 0666" {
		t.Errorf("the other name: %s", got)
	}
	if got := run(t, func(f *fixture, w *Workspace) { f.naiveCommit(t, w) }); got != "pwned 0666" {
		t.Errorf("control: the attack does not work at all: %s", got)
	}
}

// T-304, T-308, T-301: what is never committed, or not whole.
func TestCommitTakesOnlyWhatItMay(t *testing.T) {
	f := newFixture(t)
	f.write("old", "setid")
	must(t, os.Chmod(filepath.Join(f.real, "setid"), 0o755))
	w := f.prepare("w")
	a := f.run(w, order{Ops: []toolOp{
		{Do: "fifo", Path: "fifo"}, {Do: "fifo", Path: "old"}, {Do: "socket", Path: "sock"},
		{Do: "device", Path: "null"},
		{Do: "write", Path: "s", Arg: "x"}, {Do: "xattr", Path: "s", Arg: "user.note=1"},
		{Do: "xattr", Path: "s", Arg: "trusted.x=1"},
		{Do: "setid", Path: "s"}, {Do: "setid", Path: "setid"},
		{Do: "symlink", Path: "out", Arg: "/etc/passwd"}, {Do: "symlink", Path: "up", Arg: "../x"},
		{Do: "symlink", Path: "in", Arg: "./old"},
	}})
	if !strings.Contains(a.Out, `"s"`) {
		t.Fatal(a.Out)
	}
	must(t, w.Freeze())
	seen := map[string]Change{}
	for _, c := range changesOf(t, w) {
		seen[string(c.Path)] = c
	}
	if _, ok := seen["null"]; ok {
		t.Error("a tool could make a device")
	}
	for _, p := range []string{"fifo", "sock", "setid"} {
		if seen[p].Refused == "" {
			t.Errorf("%s: %+v is not refused", p, seen[p])
		}
	}
	if s := seen["s"].After; s == nil || s.Mode != 0o6755 {
		t.Fatalf("control: the shadow's file has no set-id bits: %+v", s)
	}
	r, err := w.Commit(t.Context(), CommitOptions{})
	must(t, err)
	var held []string
	for _, h := range r.Held {
		held = append(held, string(h.Path))
	}
	if diff := cmp.Diff([]string{"fifo", "old", "out", "setid", "sock", "up"}, held); diff != "" {
		t.Errorf("held: %s", diff)
	}
	info, err := os.Stat(filepath.Join(f.real, "s"))
	must(t, err)
	if info.Mode() != 0o755 {
		t.Errorf("committed mode %v", info.Mode())
	}
	buf := make([]byte, 16)
	if n, err := syscall.Getxattr(filepath.Join(f.real, "s"), "user.note", buf); err == nil {
		t.Errorf("an attribute of the tool's was committed: %q", buf[:n])
	}
	if r.State != Frozen {
		t.Errorf("state %s with changes left", r.State)
	}
	r, err = w.Commit(t.Context(), CommitOptions{Paths: []Name{"out"}, IncludeProtected: true})
	must(t, err)
	if target, err := os.Readlink(filepath.Join(f.real, "out")); err != nil ||
		target != "/etc/passwd" {
		t.Errorf("named link: %q %v", target, err)
	}
}

// T-305, T-307: what makes a directory opaque is the kernel's mark, and nothing a tool can set.
func TestForgedOverlayMarks(t *testing.T) {
	f := newFixture(t)
	f.write("forged/a", "forged/b", "made/a", "made/b")
	w := f.prepare("w")
	f.run(w, order{Ops: []toolOp{
		{Do: "chmod", Path: "forged", Arg: "700"},
		{Do: "xattr", Path: "forged", Arg: "user.overlay.opaque=y"},
		{Do: "xattr", Path: "forged", Arg: "trusted.overlay.opaque=y"},
		{Do: "xattr", Path: "forged", Arg: "user.overlay.redirect=/made"},
		{Do: "xattr", Path: "forged", Arg: "user.overlay.whiteout="},
		{Do: "remove", Path: "made"}, {Do: "mkdir", Path: "made"},
		{Do: "write", Path: "made/b", Arg: "made/b\n"},
	}})
	must(t, w.Freeze())
	// The second is the control: a real mark is read.
	want := []string{"mode forged", "deleted made/a"}
	if diff := cmp.Diff(want, brief(changesOf(t, w))); diff != "" {
		t.Error(diff)
	}
}

// T-310: names reach no terminal as they are, and come back from their escapes.
func TestNames(t *testing.T) {
	for _, tc := range []struct{ raw, shown string }{
		{"plain name-1", "plain name-1"}, {"a\nb", `a\nb`}, {"\x1b[31m", `\x1b[31m`}, {"\r", `\r`},
		{"é", "é"}, {"\xff\xfe", `\xff\xfe`},
		{`back\slash`, `back\\slash`}, {"\u202eevil", `\u202eevil`},
		{"zero\u200bwidth", `zero\u200bwidth`}, {`\x41`, `\\x41`},
		{"\u00a0", `\u00a0`}, {"\u009b1m", `\u009b1m`}, {`q"uo'te`, `q"uo'te`},
		{"\ufffd", "\ufffd"}, {"\U000e0041", `\U000e0041`},
	} {
		if got := Name(tc.raw).String(); got != tc.shown {
			t.Errorf("%q is shown as %s, want %s", tc.raw, got, tc.shown)
		}
		if back, err := ParseName(tc.shown); err != nil || string(back) != tc.raw {
			t.Errorf("%s comes back as %q, %v", tc.shown, back, err)
		}
	}
}

func FuzzName(f *testing.F) {
	f.Add("a\nb\\\xff\u202e")
	f.Fuzz(func(t *testing.T, raw string) {
		shown := Name(raw).String()
		if strings.ContainsFunc(shown, func(r rune) bool {
			return r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0
		}) {
			t.Errorf("%q is shown with control characters", raw)
		}
		if back, err := ParseName(shown); err != nil || string(back) != raw {
			t.Errorf("%q comes back as %q, %v", raw, back, err)
		}
	})
}

// T-312: what takes no room takes no time; deep trees are walked by descriptor.
func TestHugeAndDeep(t *testing.T) {
	f := newFixture(t)
	w := f.prepare("w")
	deep := strings.Repeat("n", 200)
	f.run(w, order{Ops: []toolOp{
		{Do: "sparse", Path: "tera", Arg: "1099511627776"},
		{Do: "sparse", Path: "mega", Arg: "1048577"},
		{Do: "deep", Path: deep, Arg: "100"},
	}})
	must(t, w.Freeze())
	seen := map[string]Change{}
	changes := changesOf(t, w)
	for _, c := range changes {
		seen[string(c.Path)] = c
	}
	if c := seen["tera"]; c.Refused == "" || c.After.SHA256 != "" {
		t.Errorf("1 TiB: %+v", c)
	}
	if c := seen["mega"]; c.Refused != "" || len(c.After.SHA256) != 64 {
		t.Errorf("1 MiB: %+v", c)
	}
	if longest := len(changes[99].Path); len(changes) < 100 || longest < 4096*2 {
		t.Errorf("%d changes", len(changes))
	}
	r, err := w.Commit(t.Context(), CommitOptions{})
	must(t, err)
	if len(r.Committed) != 101 {
		t.Errorf("%d committed", len(r.Committed))
	}
	var st syscall.Stat_t
	must(t, syscall.Stat(filepath.Join(f.real, "mega"), &st))
	if st.Size != 1048577 || st.Blocks > 16 {
		t.Errorf("the hole was written out: %d blocks", st.Blocks)
	}
}

func TestTooDeep(t *testing.T) {
	f := newFixture(t)
	w := f.prepare("w")
	f.run(w, order{Ops: []toolOp{{Do: "deep", Path: "d", Arg: "1500"}}})
	must(t, w.Freeze())
	if _, _, err := w.Review(t.Context()); !errors.Is(err, errTooDeep) {
		t.Errorf("review: %v", err)
	}
	must(t, w.Discard())
}

// T-316, T-331: whatever is in it, it goes, and nothing else does.
func TestDiscard(t *testing.T) {
	f := newFixture(t)
	outside, canary := f.outside()
	w := f.prepare("w")
	f.run(w, order{Ops: []toolOp{{Do: "symlink", Path: "l", Arg: outside}, {Do: "deep", Path: "d",
		Arg: "3000"},
		{Do: "mkdir", Path: "m"}, {Do: "write", Path: "m/x"}, {Do: "chmod", Path: "m", Arg: "0"}}})
	must(t, os.Symlink(outside, filepath.Join(f.dir, "w", "planted")))
	must(t, w.Discard())
	if _, err := os.Lstat(filepath.Join(f.dir, "w")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something is left: %v", err)
	}
	if content(t, canary) != "untouched" {
		t.Error("the canary was touched")
	}
}

// A socket or named pipe of the shadow is another one by the path of a layer: nobody who gets hold
// of the upper layer reaches the tool that way, and the tool reaches no socket of the real
// directory. T-063.
func TestSocketsByTheLayer(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is missing")
	}
	f := newFixture(t)
	host, err := net.Listen("unix", filepath.Join(f.real, "host"))
	must(t, err)
	defer host.Close()
	must(t, os.Chmod(filepath.Join(f.real, "host"), 0o777))
	l := f.live("w")
	l.sees(`python3 -c 'import socket; print(socket.socket(socket.AF_UNIX).connect_ex("host"))'`,
		fmt.Sprintf("%d\n", syscall.ECONNREFUSED))
	const connect = `import socket; socket.socket(socket.AF_UNIX).connect("sock")`
	l.sees(`python3 -c 'import os, signal, socket
os.mkfifo("pipe"); os.open("pipe", os.O_RDWR)
s = socket.socket(socket.AF_UNIX); s.bind("sock"); s.listen()
open("ready", "w"); signal.pause()' &
until [ -e ready ]; do sleep 0.01; done
python3 -c '`+connect+`' && echo connected`, "connected\n")
	defer l.do("kill $!")
	layer, err := l.w.Upper()
	must(t, err)
	defer layer.Close()
	var sock, pipe string
	at := fmt.Sprintf("/proc/self/fd/%d", layer.Fd())
	must(t, filepath.WalkDir(at+"/", func(path string, _ os.DirEntry, err error) error {
		switch filepath.Base(path) {
		case "sock":
			sock = path
		case "pipe":
			pipe = path
		}
		return err
	}))
	if _, err := net.Dial("unix", sock); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connect to %q: %v", sock, err)
	}
	if fd, err := syscall.Open(pipe, syscall.O_WRONLY|syscall.O_NONBLOCK, 0); err != syscall.ENXIO {
		t.Errorf("open %q, which the tool reads: %d, %v", pipe, fd, err)
	}
}
