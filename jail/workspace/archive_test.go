package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// layerText says of each entry below dir what a layer is compared by.
func layerText(t *testing.T, dir string) string {
	t.Helper()
	var lines []string
	names := map[uint64]string{}
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		rel, _ := filepath.Rel(dir, path)
		line := fmt.Sprintf("%q %v %d", rel, info.Mode(), st.Rdev)
		switch {
		case info.Mode()&os.ModeSymlink != 0:
			target, err := os.Readlink(path)
			lines = append(lines, line+" -> "+target)
			return err
		case info.Mode().IsRegular():
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d %q", len(text), strings.Trim(string(text), "\x00"))
			if st.Nlink > 1 {
				if names[st.Ino] == "" {
					names[st.Ino] = rel
				}
				line += fmt.Sprintf(" %d names, as %q", st.Nlink, names[st.Ino])
			}
		case info.IsDir():
			mark := make([]byte, 16)
			if n, err := syscall.Getxattr(path, "user.overlay.opaque", mark); err == nil {
				line += " opaque " + string(mark[:n])
			}
		}
		if info.Mode().IsRegular() || info.IsDir() {
			line += " " + info.ModTime().UTC().Format(time.RFC3339Nano)
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

func openedDirectory(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func must0(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// someLayer makes a directory with one of everything that a tool can leave.
func someLayer(t *testing.T) string {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	must0(t, os.MkdirAll(in("d/e"), 0o755), os.WriteFile(in("d/e/f"),
		[]byte("text\n{\"end\":true}\n"), 0o640), os.Symlink("../..\n/x", in("d/l")),
		os.WriteFile(in("line\nbreak\xff"), nil, 0o600), os.Mkdir(in("empty"), 0o700),
		os.Mkdir(in("z"), 0o711), os.WriteFile(in("z/last"), []byte("z"), 0o755),
		os.Link(in("d/e/f"), in("z/other")), syscall.Mkfifo(in("fifo"), 0o600),
		syscall.Setxattr(in("d"), "user.overlay.opaque", []byte("y"), 0))
	root := openedDirectory(t, dir)
	must0(t, sys.WhiteoutAt(root, "gone"))
	sparse, err := os.Create(in("sparse"))
	must0(t, err)
	_, err = sparse.WriteAt([]byte("at the end"), 40<<20)
	must0(t, err, sparse.Truncate(64<<20), sparse.Close())
	for _, name := range []string{"z/last", "d/e", "d", "empty", "."} {
		old := time.Date(1999, 12, 31, 23, 59, 59, 123456789, time.UTC)
		must0(t, os.Chtimes(in(name), old, old))
	}
	must0(t, os.Chmod(in("empty"), 0))
	t.Cleanup(func() { os.Chmod(in("empty"), 0o700) })
	return dir
}

// TestArchive: what is read is what was written, with every kind of entry, and as small as what it
// holds.
func TestArchive(t *testing.T) {
	from, to := someLayer(t), t.TempDir()
	file, err := os.Create(filepath.Join(t.TempDir(), "archive"))
	must0(t, err)
	defer file.Close()
	must0(t, writeArchive(file, openedDirectory(t, from)))
	info, err := file.Stat()
	must0(t, err)
	if info.Size() > 64<<10 {
		t.Errorf("it has %d bytes", info.Size())
	}
	must0(t, readArchive(file, openedDirectory(t, to)))
	if want, got := layerText(t, from), layerText(t, to); got != want {
		t.Errorf("read:\n%s\nwritten:\n%s", got, want)
	}
	os.Chmod(filepath.Join(to, "empty"), 0o700)
}

// TestArchiveDamaged: what is not whole is refused, wherever it was cut off, and nothing leads out
// of the directory.
func TestArchiveDamaged(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "archive"))
	must0(t, err)
	defer file.Close()
	small := t.TempDir()
	must0(t, os.Mkdir(filepath.Join(small, "d"), 0o755),
		os.WriteFile(filepath.Join(small, "d/f"), []byte("content"), 0o644))
	must0(t, writeArchive(file, openedDirectory(t, small)))
	whole, err := os.ReadFile(file.Name())
	must0(t, err)
	cuts := map[string][]byte{}
	for n := 0; n < len(whole); n += 5 {
		cuts[fmt.Sprintf("cut after %d of %d bytes", n, len(whole))] = whole[:n]
	}
	for _, name := range []string{"Li4=", "Lg==", "YS9i", "Lw==", ""} { // "..", ".", "a/b", "/"
		cuts["the name "+name] = bytes.Replace(whole, []byte(`"name":"ZA=="`),
			[]byte(`"name":"`+name+`"`), 1)
	}
	cuts["two roots"] = slices.Concat([]byte(`{"dir":{"mode":493,"mtime":{"sec":0,"nsec":0}}}`+
		"\n{\"up\":true}\n{\"up\":true}\n"), whole)
	cuts["another name of nothing"] = []byte(`{"dir":{"mode":493,"mtime":{"sec":0,"nsec":0}}}` +
		"\n" + `{"name":"YQ==","same":7}` + "\n{\"up\":true}\n{\"end\":true}\n")
	for what, text := range cuts {
		above := t.TempDir()
		dir := filepath.Join(above, "upper")
		must0(t, os.Mkdir(dir, 0o700), os.WriteFile(file.Name(), text, 0o600))
		if err := readArchive(file, openedDirectory(t, dir)); !errors.Is(err, errArchive) {
			t.Errorf("%s: %v", what, err)
		}
		if names, err := os.ReadDir(above); err != nil || len(names) != 1 {
			t.Errorf("%s: beside it are %v, %v", what, names, err)
		}
	}
}
