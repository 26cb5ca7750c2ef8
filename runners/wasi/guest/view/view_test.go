package view

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners/internal/sys"
)

// log keeps refusals as text.
type log []string

func (l *log) Denied(what, rule string) { *l = append(*l, what+": "+rule) }

// files writes a tree: a name that ends in a slash is a directory, a content
// that starts with "-> " is a link.
func files(t *testing.T, tree map[string]string) string {
	t.Helper()
	top := t.TempDir()
	names := make([]string, 0, len(tree))
	for name := range tree {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		p := filepath.Join(top, name)
		err := os.MkdirAll(filepath.Dir(p), 0o755)
		target, link := strings.CutPrefix(tree[name], "-> ")
		switch {
		case err != nil:
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(p, 0o755)
		case link:
			err = os.Symlink(target, p)
		default:
			err = os.WriteFile(p, []byte(tree[name]), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return top
}

// mountAt makes a mount of the guest's path at, which is dir on the host.
func mountAt(t *testing.T, at, dir string, write bool, hide ...string) Mount {
	t.Helper()
	fd, err := sys.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := Mount{Path: at, FD: fd, Write: write}
	if hide != nil {
		m.Hidden = policy.Hidden(hide)
	}
	return m
}

func newView(t *testing.T, mounts ...Mount) (*View, *log) {
	t.Helper()
	l := &log{}
	v, err := New(mounts, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	return v, l
}

func root(t *testing.T, v *View) *Dir {
	t.Helper()
	d, e := v.Root()
	if e != 0 {
		t.Fatal(e)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func sub(t *testing.T, d *Dir, p string) *Dir {
	t.Helper()
	o, e := d.Open(p, How{Read: true, Directory: true})
	if e != 0 {
		t.Fatalf("%s: %v", p, e)
	}
	t.Cleanup(func() { o.Dir.Close() })
	return o.Dir
}

// text reads a file through the view.
func text(d *Dir, p string) (string, Errno) {
	o, e := d.Open(p, How{Read: true, Follow: true})
	if e != 0 {
		return "", e
	}
	if o.Dir != nil {
		o.Dir.Close()
		return "", syscall.EISDIR
	}
	defer sys.Close(o.FD)
	buf := make([]byte, 4096)
	n, err := sys.Preadv(o.FD, [][]byte{buf}, 0)
	return string(buf[:n]), sys.ErrnoOf(err)
}

func names(t *testing.T, d *Dir) string {
	t.Helper()
	var out []string
	if e := d.Entries(0, func(e Entry) bool {
		out = append(out, string(e.Name))
		return true
	}); e != 0 {
		t.Fatal(e)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// T-107 and the meaning of every form of a path.
func TestPaths(t *testing.T) {
	long := strings.Repeat("x", 256)
	deep := strings.Repeat("a/", 2100)
	dir := files(t, map[string]string{
		"f": "f", "d/g": "g", "d/e/h": "h", "l": "-> f", "ld": "-> d", "up": "-> ../tmp/t",
		"d/back": "-> ../f",
		"abs":    "-> /workspace/d/g", "abstmp": "-> /tmp/t", "absout": "-> /etc/passwd",
		"loop": "-> loop", "a\\b": "backslash",
		"\xff": "byte", "dangling": "-> nowhere", "many0": "-> f", "absdir": "-> /workspace/d",
		"rootlink": "-> /",
	})
	for i := 1; i < 60; i++ {
		if err := os.Symlink(fmt.Sprint("many", i-1),
			filepath.Join(dir, fmt.Sprint("many", i))); err != nil {
			t.Fatal(err)
		}
	}
	tmp := files(t, map[string]string{"t": "t"})
	v, _ := newView(t, mountAt(t, "/workspace", dir, true), mountAt(t, "/tmp", tmp, true),
		mountAt(t, "/data/dict", tmp, false))
	tests := []struct {
		p     string
		want  string
		errno Errno
	}{
		{"workspace/f", "f", 0}, {"workspace//f", "f", 0}, {"./workspace/./f", "f", 0},
		{"workspace/d/../f", "f", 0},
		{"workspace/l", "f", 0}, {"workspace/ld/g", "g", 0}, {"workspace/d/back", "f", 0},
		{"workspace/d/e/../../f", "f", 0}, {"workspace/../tmp/t", "t", 0},
		{"workspace/d/../../tmp/t", "t", 0},
		{"tmp/../workspace/f", "f", 0}, {"workspace/up", "t", 0}, {"workspace/abs", "g", 0},
		{"workspace/abstmp", "t", 0},
		{"workspace/absdir/e/h", "h", 0}, {"workspace/absdir/../f", "f", 0},
		{"workspace/rootlink/tmp/t", "t", 0},
		{"workspace/ld/../../tmp/../workspace/ld/g", "g", 0}, {"data/dict/t", "t", 0},
		{"data/../tmp/t", "t", 0},
		{"workspace/a\\b", "backslash", 0}, {"workspace/\xff", "byte", 0},
		{"workspace/many20", "f", 0},
		{"workspace/many55", "", syscall.ELOOP}, {"workspace/loop", "", syscall.ELOOP},
		{"workspace/dangling", "", syscall.ENOENT},
		{"workspace/absout", "", syscall.EACCES}, {"workspace/missing", "", syscall.ENOENT},
		{"workspace/f/", "", syscall.ENOTDIR},
		{"workspace/l/", "", syscall.ENOTDIR}, {"workspace/f/.", "", syscall.ENOTDIR},
		{"workspace/f/..", "", syscall.ENOTDIR},
		{"workspace/f/x", "", syscall.ENOTDIR}, {"workspace/d", "", syscall.EISDIR},
		{"workspace", "", syscall.EISDIR}, {"workspace/", "", syscall.EISDIR},
		{".", "", syscall.EISDIR}, {"data", "", syscall.EISDIR}, {"data/", "", syscall.EISDIR},
		{"", "", syscall.ENOENT}, {"/etc/passwd", "", syscall.EPERM}, {"/workspace/f", "", syscall.EPERM},
		{"/", "", syscall.EPERM}, {"//", "", syscall.EPERM},
		{"etc/passwd", "", syscall.EACCES}, {"etc", "", syscall.EACCES}, {"data/other", "", syscall.EACCES},
		{"workspacex", "", syscall.EACCES},
		{"..", "", syscall.EPERM}, {"../etc/passwd", "", syscall.EPERM},
		{"workspace/../..", "", syscall.EPERM},
		{"workspace/d/../../../etc", "", syscall.EPERM},
		{"workspace/ld/../../../x", "", syscall.EPERM}, {"...", "", syscall.EACCES},
		{"workspace/...", "", syscall.ENOENT},
		{"workspace/f\x00", "", syscall.EINVAL}, {"\x00", "", syscall.EINVAL},
		{"workspace/" + long, "", syscall.ENAMETOOLONG},
		{"workspace/" + deep, "", syscall.ENAMETOOLONG},
		{strings.Repeat("./", 3000) + "tmp/t", "", syscall.ENAMETOOLONG},
	}
	d := root(t, v)
	for _, tt := range tests {
		if got, e := text(d, tt.p); got != tt.want || e != tt.errno {
			t.Errorf("%.60q: %q %v, want %q %v", tt.p, got, e, tt.want, tt.errno)
		}
		if _, e := d.Stat(tt.p, true); (e == 0) != (tt.errno == 0 || tt.errno == syscall.EISDIR) {
			t.Errorf("stat %.60q: %v, open %v", tt.p, e, tt.errno)
		}
	}
	if got := names(t, d); got != ". .. data tmp workspace" {
		t.Errorf("root lists %s", got)
	}
	if got := names(t, sub(t, d, "data")); got != ". .. dict" {
		t.Errorf("data lists %s", got)
	}
}

// A confined directory reaches its own mount and nothing beside it; ".." works
// from a directory inside it.
func TestPreopen(t *testing.T) {
	dir := files(t, map[string]string{"f": "f", "d/g": "g", "d/e/h": "h", "up": "-> ../tmp/t",
		"abs": "-> /workspace/f"})
	tmp := files(t, map[string]string{"t": "t"})
	v, l := newView(t, mountAt(t, "/workspace", dir, true), mountAt(t, "/tmp", tmp, true))
	d, e := v.Preopen("/workspace")
	if e != 0 {
		t.Fatal(e)
	}
	defer d.Close()
	deep := sub(t, sub(t, d, "d"), "e")
	for _, tt := range []struct {
		d     *Dir
		p     string
		want  string
		errno Errno
	}{
		{d, "f", "f", 0}, {d, "d/../f", "f", 0}, {d, "abs", "f", 0}, {d, "../tmp/t", "", syscall.EPERM},
		{d, "up", "", syscall.EPERM},
		{d, "..", "", syscall.EPERM}, {d, "d/../..", "", syscall.EPERM},
		{deep, "../g", "g", 0}, {deep, "../../f", "f", 0}, {deep, "../../../tmp/t", "", syscall.EPERM},
		{deep, "h", "h", 0},
		{deep, "../e/h", "h", 0},
	} {
		got, e := text(tt.d, tt.p)
		if got != tt.want || e != tt.errno {
			t.Errorf("%q: %q %v, want %q %v", tt.p, got, e, tt.want, tt.errno)
		}
	}
	if !slices.Contains(*l, "read /tmp/t: "+ruleEscape) {
		t.Errorf("records: %q", *l)
	}
	// The directory is moved: ".." is then where it is now.
	if e := d.Rename("d", d, "moved"); e != 0 {
		t.Fatal(e)
	}
	if got, e := text(deep, "../g"); got != "g" || e != 0 {
		t.Errorf("after a rename: %q %v", got, e)
	}
}

func TestMountsRefused(t *testing.T) {
	for _, paths := range [][]string{{"workspace"}, {"/a/../b"}, {"/a", "/a"}, {"/a", "/a/b"},
		{"/a/b", "/a"}, {"/", "/a"}, {"/a", "/"}, {""}, {"/a/"}} {
		var mounts []Mount
		for _, p := range paths {
			mounts = append(mounts, mountAt(t, p, t.TempDir(), true))
		}
		if _, err := New(mounts, &log{}); err == nil {
			t.Errorf("%q is accepted", paths)
		}
	}
}

// The directories of the view itself cannot be changed.
func TestVirtual(t *testing.T) {
	v, l := newView(t, mountAt(t, "/workspace", files(t, map[string]string{"f": "f", "d/": ""}),
		true), mountAt(t, "/data/dict", t.TempDir(), true))
	d := root(t, v)
	ts := &[2]sys.Timespec{}
	for name, e := range map[string]Errno{
		"mkdir new":        d.Mkdir("new") ^ syscall.EACCES,
		"mkdir data/new":   d.Mkdir("data/new") ^ syscall.EACCES,
		"mkdir workspace":  d.Mkdir("workspace") ^ syscall.EEXIST,
		"mkdir data":       d.Mkdir("data/") ^ syscall.EEXIST,
		"rmdir data":       d.Rmdir("data") ^ syscall.EBUSY,
		"unlink data":      d.Unlink("data") ^ syscall.EBUSY,
		"rename over":      d.Rename("workspace/d", d, "data") ^ syscall.EBUSY,
		"rename data":      d.Rename("data", d, "workspace/x") ^ syscall.EBUSY,
		"link":             d.Link("workspace/f", d, "x") ^ syscall.EACCES,
		"symlink":          d.Symlink("x", "y") ^ syscall.EACCES,
		"times":            d.SetTimes("data", true, ts) ^ syscall.EACCES,
		"across":           d.Rename("workspace/f", d, "data/dict/f") ^ syscall.EXDEV,
		"link across":      d.Link("workspace/f", d, "data/dict/f") ^ syscall.EXDEV,
		"symlink absolute": d.Symlink("/etc/passwd", "workspace/l") ^ syscall.EPERM,
		"rmdir mount":      d.Rmdir("workspace/.") ^ syscall.EINVAL,
	} {
		if e != 0 {
			t.Errorf("%s: not the error that it should be", name)
		}
	}
	if _, e := d.Open("new", How{Write: true, Create: true}); e != syscall.EACCES ||
		!slices.Contains(*l, "write /new: "+ruleOutside) {
		t.Errorf("create: %v, %q", e, *l)
	}
}

// T-111: nothing waits for a FIFO, and nothing but files and directories opens.
func TestSpecial(t *testing.T) {
	dir := t.TempDir()
	if err := mkfifo(filepath.Join(dir, "fifo")); err != nil {
		t.Fatal(err)
	}
	ln := listen(t, filepath.Join(dir, "sock"))
	defer ln.Close()
	v, l := newView(t, mountAt(t, "/w", dir, true))
	d := root(t, v)
	for _, name := range []string{"w/fifo", "w/sock"} {
		for _, how := range []How{{Read: true}, {Write: true}, {Read: true, Write: true},
			{Read: true, Truncate: true}, {Write: true, Create: true}} {
			if _, e := d.Open(name, how); e != syscall.EACCES {
				t.Errorf("%s %+v: %v", name, how, e)
			}
		}
	}
	if !slices.Contains(*l, "read /w/fifo: "+ruleSpecial) {
		t.Errorf("records: %q", *l)
	}
	// The control: an open that is willing to wait does wait.
	if waited := openWaits(filepath.Join(dir, "fifo")); !waited {
		t.Error("a plain open of a FIFO does not wait")
	}
}

func FuzzPaths(f *testing.F) {
	for _, p := range []string{"w/f", "../x", "w/../../x", "w/l/../..", "//", "w/d/./../l",
		"w/\x00", "w/l/secret", "t/../w/abs/secret"} {
		f.Add(p, p)
	}
	f.Fuzz(func(t *testing.T, p, q string) {
		top := files(t, map[string]string{"secret": "canary", "in/f": "f", "in/d/g": "g",
			"in/l": "-> ..", "in/abs": "-> " + os.TempDir(), "tmp/t": "t"})
		v, _ := newView(t, mountAt(t, "/w", filepath.Join(top, "in"), true),
			mountAt(t, "/t", filepath.Join(top, "tmp"), true, "*.key"))
		d := root(t, v)
		for _, x := range []*Dir{d, sub(t, d, "w"), sub(t, d, "w/d")} {
			if s, e := text(x, p); e == 0 && strings.Contains(s, "canary") {
				t.Errorf("%q reads the canary", p)
			}
			x.Mkdir(p)
			x.Symlink(q, p)
			if s, e := text(x, p+"/secret"); e == 0 && strings.Contains(s, "canary") {
				t.Errorf("%q reads the canary", p)
			}
			x.Rename(p, x, q)
			x.Link(q, x, p)
			x.Unlink(q)
			x.Rmdir(p)
		}
		if b, err := os.ReadFile(filepath.Join(top, "secret")); err != nil ||
			string(b) != "canary" {
			t.Errorf("%q %q: canary is %q, %v", p, q, b, err)
		}
		if n, err := os.ReadDir(top); err != nil || len(n) != 3 {
			t.Errorf("%q %q: outside has %v, %v", p, q, n, err)
		}
	})
}
