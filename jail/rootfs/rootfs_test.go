package rootfs_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jail-sandbox/jail/jail/rootfs"
)

// An entry is one of an archive; text is the content of a file and the target of a link.
type entry struct {
	kind byte
	name string
	text string
	mode int64
}

func dir(name string) entry            { return entry{tar.TypeDir, name, "", 0o755} }
func file(name, text string) entry     { return entry{tar.TypeReg, name, text, 0o644} }
func symlink(name, to string) entry    { return entry{tar.TypeSymlink, name, to, 0o777} }
func hardlink(name, to string) entry   { return entry{tar.TypeLink, name, to, 0o644} }
func mode(e entry, mode int64) entry   { e.mode = mode; return e }
func odd(kind byte, name string) entry { return entry{kind, name, "", 0o666} }

func archive(t testing.TB, entries ...entry) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Typeflag: e.kind, Name: e.name, Mode: e.mode, Uid: 1234, Gid: 1234,
			ModTime: time.Unix(1e9, 0), Format: tar.FormatPAX}
		switch e.kind {
		case tar.TypeReg:
			h.Size = int64(len(e.text))
			h.PAXRecords = map[string]string{"SCHILY.xattr.trusted.overlay.opaque": "y",
				"SCHILY.xattr.user.a": "b"}
		case tar.TypeSymlink, tar.TypeLink:
			h.Linkname = e.text
		case tar.TypeChar, tar.TypeBlock:
			h.Devmajor, h.Devminor = 1, 3
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if e.kind == tar.TypeReg {
			if _, err := io.WriteString(w, e.text); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// A place is a directory with a root in it, and something beside the root that nobody may change.
type place struct{ dir, root string }

const secret = "beside"

func newPlace(t testing.TB) place {
	t.Helper()
	dir := t.TempDir()
	p := place{dir, filepath.Join(dir, "root")}
	if err := errors.Join(os.Mkdir(p.root, 0o755), os.WriteFile(filepath.Join(dir, secret),
		[]byte("untouched"), 0o644)); err != nil {
		t.Fatal(err)
	}
	return p
}

var wide = rootfs.Bounds{Bytes: 64 << 20, Entries: 10_000}

// unpack unpacks layers as the daemon does, and wants nothing beside the root to change.
func (p place) unpack(t testing.TB, b rootfs.Bounds, layers ...*bytes.Buffer) (rootfs.TreeUsage, error) {
	t.Helper()
	root, err := os.Open(p.root)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	tree, err := rootfs.New(root, b)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	for _, l := range layers {
		if err = tree.Delete(t.Context(), bytes.NewReader(l.Bytes())); err == nil {
			err = tree.Add(t.Context(), l)
		}
		if err != nil {
			break
		}
	}
	entries, readErr := os.ReadDir(p.dir)
	text, textErr := os.ReadFile(filepath.Join(p.dir, secret))
	if readErr != nil || textErr != nil || len(entries) != 2 || string(text) != "untouched" {
		t.Fatalf("beside the root is %v, %q: %v, %v", entries, text, readErr, textErr)
	}
	return tree.Used(), err
}

// look returns what is in the root: "d" for a directory, "-> target" for a link, else the content.
func (p place) look(t testing.TB) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(p.root, func(path string, e fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(p.root, path)
		switch {
		case err != nil:
			return err
		case rel == ".":
		case e.IsDir():
			all[rel] = "d"
		case e.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			all[rel] = "-> " + to
			return err
		case e.Type().IsRegular():
			text, err := os.ReadFile(path)
			all[rel] = string(text)
			return err
		default:
			all[rel] = e.Type().String()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

type layers [][]entry

// TestUnpack holds off T-560 in the cases that have a meaning.
func TestUnpack(t *testing.T) {
	for name, c := range map[string]struct {
		layers layers
		want   map[string]string
	}{
		"files, directories and links": {layers{{dir("usr/"), dir("./usr/bin"),
			file("usr/bin/a", "a"), symlink("bin", "usr/bin"), hardlink("b", "usr/bin/a"),
			symlink("nowhere", "/no/such"), hardlink("bin2", "bin")}},
			map[string]string{"usr": "d", "usr/bin": "d", "usr/bin/a": "a", "bin": "-> usr/bin",
				"b": "a", "nowhere": "-> /no/such", "bin2": "-> usr/bin"}},
		"directories that no entry names": {layers{{file("a/b/c", "x")}},
			map[string]string{"a": "d", "a/b": "d", "a/b/c": "x"}},
		"absolute names are below the root": {layers{{file("/etc/x", "x")}},
			map[string]string{"etc": "d", "etc/x": "x"}},
		"through a link": {layers{{dir("usr/lib"), symlink("lib", "usr/lib"), file("lib/x", "x")}},
			map[string]string{"usr": "d", "usr/lib": "d", "usr/lib/x": "x", "lib": "-> usr/lib"}},
		"a link that leads out leads to the root": {layers{{symlink("out", "../../../.."),
			symlink("abs", "/"), file("out/x", "x"), file("abs/y", "y"),
			file("out/"+secret, "mine")}},
			map[string]string{"out": "-> ../../../..", "abs": "-> /", "x": "x", "y": "y",
				secret: "mine"}},
		"an entry replaces an entry": {layers{{file("a", "1"), file("a", "2"), dir("d"),
			file("d/x", "x"), file("d", "file"), symlink("l", "a"), file("l", "own"), file("f", "f"),
			dir("f")}},
			map[string]string{"a": "2", "d": "file", "l": "own", "f": "d"}},
		"a directory replaces a link, but no directory": {layers{{dir("usr/lib"), file("usr/lib/x", "x"),
			symlink("lib", "usr/lib")}, {dir("lib"), file("lib/y", "y"), dir("usr/lib")}},
			map[string]string{"usr": "d", "usr/lib": "d", "usr/lib/x": "x", "lib": "d", "lib/y": "y"}},
		"a file is not written through a hard link": {layers{{file("a", "1"), hardlink("b", "a")},
			{file("a", "2")}}, map[string]string{"a": "2", "b": "1"}},
		"whiteouts": {layers{{file("a", "a"), file("d/x", "x"), file("d/y", "y"), symlink("l", "d"),
			file("e/z", "z")},
			{file(".wh.a", ""), file("d/.wh.x", ""), file(".wh.l", ""), file(".wh.e", ""),
				file("no/such/.wh.file", ""), file(".wh.not-there", "")}},
			map[string]string{"d": "d", "d/y": "y"}},
		"a whiteout is about lower layers, wherever it stands": {layers{{file("a", "1"),
			file("d/old", "1")}, {file("a", "2"), file(".wh.a", ""), file("d/new", "2"),
			file("d/.wh..wh..opq", "")}},
			map[string]string{"a": "2", "d": "d", "d/new": "2"}},
		"an opaque directory": {layers{{file("d/x", "x"), file("d/y/z", "z"), file("e", "e")},
			{dir("d"), file("d/.wh..wh..opq", ""), file("d/new", "n")}},
			map[string]string{"d": "d", "d/new": "n", "e": "e"}},
		"an opaque root": {layers{{file("d/x", "x"), file("e", "e")}, {file(".wh..wh..opq", ""),
			file("new", "n")}}, map[string]string{"new": "n"}},
		"names of aufs": {layers{{file("a", "a")}, {dir(".wh..wh.plnk"), file(".wh..wh.aufs", "")}},
			map[string]string{"a": "a"}},
		"devices and pipes are never made, and hide what was below": {layers{{file("dev/x", "x")},
			{odd(tar.TypeChar, "dev/null"), odd(tar.TypeBlock, "dev/x"), odd(tar.TypeFifo, "p")}},
			map[string]string{"dev": "d"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			var all []*bytes.Buffer
			for _, l := range c.layers {
				all = append(all, archive(t, l...))
			}
			if _, err := p.unpack(t, wide, all...); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, p.look(t)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// T-560: what is refused leaves nothing beside the root; TestUnpack is the control.
func TestRefused(t *testing.T) {
	long := strings.Repeat("d/", 200)
	var deeper []entry
	// Each name is short, but leads through a link to where the last one ended.
	for i := range 4 {
		deep := strings.Repeat("d/", 60) + "end"
		if i > 0 {
			deep = fmt.Sprintf("l%d/%s", i-1, deep)
		}
		deeper = append(deeper, dir(deep), symlink(fmt.Sprintf("l%d", i), deep))
	}
	var chain []entry
	for i := range 50 {
		chain = append(chain, symlink(fmt.Sprintf("c%d", i), fmt.Sprintf("c%d", i+1)))
	}
	for name, c := range map[string]struct {
		entries []entry
		want    string
	}{
		"upwards":               {[]entry{file("../x", "x")}, "leads upwards"},
		"upwards in the middle": {[]entry{file("a/../../x", "x")}, "leads upwards"},
		"a link's file is upwards": {[]entry{hardlink("x", "../"+secret)},
			"leads upwards"},
		"a hard link to what is beside": {[]entry{symlink("out", ".."), hardlink("x", "out/"+secret)},
			"a link leads nowhere"},
		"a hard link to a directory": {[]entry{dir("d"), hardlink("x", "d")}, "is no file"},
		"a hard link to nothing":     {[]entry{hardlink("x", "gone")}, "a link leads nowhere"},
		"a hard link to the root":    {[]entry{hardlink("x", "/")}, "is no file"},
		"below a file":               {[]entry{file("a", "a"), file("a/b", "b")}, "a file is in the way"},
		"below a dangling link": {[]entry{symlink("a", "/no/such"), file("a/b", "b")},
			"a link leads nowhere"},
		"below a circle": {[]entry{symlink("a", "b"), symlink("b", "a"), file("a/x", "x")},
			"too many links"},
		"below a chain":            {append(chain, file("c0/x", "x")), "too many links"},
		"a name that is too deep":  {[]entry{file(long+"x", "x")}, "lies in more than"},
		"too deep by links":        {deeper, "the name is too long"},
		"a part that is too long":  {[]entry{file(strings.Repeat("n", 300), "x")}, "the name is too long"},
		"a whiteout of a name ..":  {[]entry{file(".wh...", "")}, "names no file"},
		"a whiteout of no name":    {[]entry{file(".wh.", "")}, "names no file"},
		"a kind that no layer has": {[]entry{odd('Z', "x")}, "of a kind"},
		"a link's target that is too long": {[]entry{symlink("l", strings.Repeat("n", 5000))},
			"the name is too long"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			_, err := p.unpack(t, wide, archive(t, c.entries...))
			if !errors.Is(err, rootfs.ErrLayer) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// T-561: nothing that is unpacked has rights or attributes of its own.
func TestAttributes(t *testing.T) {
	p := newPlace(t)
	if _, err := p.unpack(t, wide, archive(t, mode(file("su", "x"), 0o6755), mode(dir("tmp"), 0o1777),
		mode(dir("closed"), 0o2000), mode(file("none", "x"), 0))); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{"su": 0o755, "tmp": fs.ModeDir | fs.ModeSticky | 0o777,
		"closed": fs.ModeDir | 0o700, "none": 0} {
		path := filepath.Join(p.root, name)
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if st := info.Sys().(*syscall.Stat_t); info.Mode() != want || int(st.Uid) != os.Geteuid() {
			t.Errorf("%s: %v of %d, want %v", name, info.Mode(), st.Uid, want)
		}
		if n, err := syscall.Listxattr(path, nil); err != nil || n != 0 {
			t.Errorf("%s: %d bytes of attributes, %v", name, n, err)
		}
	}
	if info, err := os.Stat(filepath.Join(p.root, "su")); err != nil || info.ModTime().Unix() != 1e9 {
		t.Errorf("time %v, %v", info.ModTime(), err)
	}
}

// TestBounds holds off T-562; each bound has a control that fits.
func TestBounds(t *testing.T) {
	many := func(n int) (all []entry) {
		for i := range n {
			all = append(all, file(fmt.Sprint(i), ""))
		}
		return all
	}
	same := func(n int) (all []entry) { return slices.Repeat([]entry{file("a", "x")}, n) }
	large := file("a", strings.Repeat("x", 1<<20))
	for name, c := range map[string]struct {
		bounds rootfs.Bounds
		layer  *bytes.Buffer
		fails  bool
	}{
		"entries":        {rootfs.Bounds{Bytes: 1 << 20, Entries: 99}, archive(t, many(100)...), true},
		"entries fit":    {rootfs.Bounds{Bytes: 1 << 20, Entries: 100}, archive(t, many(100)...), false},
		"the same entry": {rootfs.Bounds{Bytes: 1 << 20, Entries: 99}, archive(t, same(100)...), true},
		"many whiteouts": {rootfs.Bounds{Bytes: 1 << 20, Entries: 99},
			archive(t, slices.Repeat([]entry{file(".wh.a", "")}, 100)...), true},
		"many made": {rootfs.Bounds{Bytes: 1 << 20, Entries: 9},
			archive(t, file("a/b/c/d/e/f/g/h/i/j", "")), true},
		"a file":      {rootfs.Bounds{Bytes: 1 << 20, Entries: 10}, archive(t, large), true},
		"a file fits": {rootfs.Bounds{Bytes: 2 << 20, Entries: 10}, archive(t, large), false},
		"two files":   {rootfs.Bounds{Bytes: 2 << 20, Entries: 10}, archive(t, large, large), true},
		"the disk":    {rootfs.Bounds{Bytes: 2 << 20, Entries: 10, Free: 1 << 60}, archive(t, large), true},
		"padding": {rootfs.Bounds{Bytes: 1 << 20, Entries: 10},
			bytes.NewBuffer(append(archive(t, file("a", "x")).Bytes(), make([]byte, 2<<20)...)), true},
		"a sparse file": {rootfs.Bounds{Bytes: 1 << 20, Entries: 10}, sparse(t, 1<<30), true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			used, err := p.unpack(t, c.bounds, c.layer)
			if errors.Is(err, rootfs.ErrTooLarge) != c.fails || !c.fails && err != nil {
				t.Errorf("fails: %v, error %v, used %+v", c.fails, err, used)
			}
		})
	}
}

// sparse is an archive with a file of so many bytes, all of which is a hole.
func sparse(t testing.TB, size int64) *bytes.Buffer {
	t.Helper()
	text := archive(t, file("s", "")).Bytes()
	// The last header but the end's two blocks is that of the file.
	i := len(text) - 3*512
	h := text[i : i+512]
	copy(h[257:], "ustar  \x00")
	h[156] = 'S'
	// An old GNU header: no parts, and the real size.
	copy(h[483:495], fmt.Sprintf("%011o\x00", size))
	copy(h[148:156], "        ")
	sum := 0
	for _, b := range h {
		sum += int(b)
	}
	copy(h[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return bytes.NewBuffer(text[i:])
}

func TestDamaged(t *testing.T) {
	whole := archive(t, file("a", strings.Repeat("x", 2000)), file("b", "b")).Bytes()
	for name, text := range map[string][]byte{"cut off in a file": whole[:2048],
		"cut off in a header": whole[:300],
		"no archive":          []byte(strings.Repeat("nothing of it ", 100))} {
		p := newPlace(t)
		if _, err := p.unpack(t, wide, bytes.NewBuffer(text)); !errors.Is(err, rootfs.ErrLayer) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	p := newPlace(t)
	root, err := os.Open(p.root)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	tree, err := rootfs.New(root, wide)
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.Add(ended, bytes.NewReader(whole)); !errors.Is(err, context.Canceled) {
		t.Errorf("the end of the run: %v", err)
	}
}

// FuzzAdd: whatever a layer is, nothing beside the root changes, and nothing is made but
// directories, files and links without set-id bits.
func FuzzAdd(f *testing.F) {
	f.Add(archive(f, dir("a"), file("a/b", "x"), symlink("l", "../.."), hardlink("h", "a/b"),
		file("l/x", "y"), file(".wh.a", ""), odd(tar.TypeChar, "c")).Bytes())
	f.Add(sparse(f, 1<<16).Bytes())
	f.Fuzz(func(t *testing.T, layer []byte) {
		p := newPlace(t)
		_, _ = p.unpack(t, rootfs.Bounds{Bytes: 1 << 20, Entries: 100}, bytes.NewBuffer(layer),
			bytes.NewBuffer(slices.Clone(layer)))
		for name := range maps.Keys(p.look(t)) {
			info, err := os.Lstat(filepath.Join(p.root, name))
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeDevice|fs.ModeNamedPipe) != 0 {
				t.Errorf("%q: %v", name, info.Mode())
			}
		}
	})
}
