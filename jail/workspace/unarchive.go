package workspace

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// errArchive is returned for a file that writeArchive did not write.
var errArchive = errors.New("the file of the upper layer is damaged")

// maxLine bounds one line of an archive in bytes: a name, a link's target and attributes.
const maxLine = 1 << 20

type unarchiver struct {
	r    *bufio.Reader
	root *os.File
	dirs []openedDir
	// files are the paths of the regular files.
	files []string
}

type openedDir struct {
	f    *os.File
	path string
	// Set when the directory is left, since its entries change its time, and its mode may forbid
	// them.
	node layerInode
}

// readArchive makes the layer that writeArchive wrote to f below upper, which is empty.
func readArchive(f, upper *os.File) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	u := &unarchiver{r: bufio.NewReaderSize(f, maxLine), root: upper}
	defer func() {
		for _, d := range u.dirs {
			d.f.Close()
		}
	}()
	for {
		text, err := u.r.ReadSlice('\n')
		if err != nil {
			return fmt.Errorf("%w: it ends too early: %w", errArchive, err)
		}
		var e archived
		if err := json.Unmarshal(text, &e); err != nil {
			return fmt.Errorf("%w: %w", errArchive, err)
		}
		if e.End {
			if len(u.dirs) != 0 {
				return fmt.Errorf("%w: it ends too early", errArchive)
			}
			return nil
		}
		if err := u.take(e); err != nil {
			return err
		}
	}
}

func (u *unarchiver) take(e archived) error {
	name := string(e.Name)
	if e.Up {
		return u.leave()
	}
	if len(u.dirs) == 0 {
		if e.Dir == nil || name != "" || len(u.files) > 0 {
			return fmt.Errorf("%w: it does not begin with a directory", errArchive)
		}
		root, err := sys.OpenSubdir(u.root, ".")
		if err != nil {
			return err
		}
		u.dirs = append(u.dirs, openedDir{root, "", *e.Dir})
		return nil
	}
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("%w: %q is no name", errArchive, name)
	}
	in := u.dirs[len(u.dirs)-1]
	switch {
	case e.Dir != nil:
		if err := sys.MkdirAt(in.f, name, 0o700); err != nil {
			return err
		}
		sub, err := sys.OpenSubdir(in.f, name)
		if err != nil {
			return err
		}
		u.dirs = append(u.dirs, openedDir{sub, filepath.Join(in.path, name), *e.Dir})
		return nil
	case e.File != nil:
		return u.file(in, name, e)
	case e.Same > 0 && e.Same <= len(u.files):
		f, err := sys.OpenPath(u.root, u.files[e.Same-1])
		if err != nil {
			return err
		}
		return errors.Join(sys.LinkOwn(f, in.f, name), f.Close())
	case e.Link != nil:
		return sys.SymlinkAt(string(e.Link.Target), in.f, name)
	case e.White:
		return sys.WhiteoutAt(in.f, name)
	case e.Odd == syscall.S_IFIFO || e.Odd == syscall.S_IFSOCK:
		return sys.MakeOdd(in.f, name, e.Odd)
	}
	return fmt.Errorf("%w: %q is unknown", errArchive, name)
}

func (u *unarchiver) leave() error {
	if len(u.dirs) == 0 {
		return fmt.Errorf("%w: it leaves a directory that it is not in", errArchive)
	}
	d := u.dirs[len(u.dirs)-1]
	u.dirs = u.dirs[:len(u.dirs)-1]
	return errors.Join(endow(d.f, d.node), d.f.Close())
}

func (u *unarchiver) file(in openedDir, name string, e archived) error {
	u.files = append(u.files, filepath.Join(in.path, name))
	f, err := sys.OpenBeneath(in.f, name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = f.Truncate(e.File.Size)
	for _, d := range e.Data {
		if err != nil {
			break
		}
		var n int64
		if n, err = io.Copy(io.NewOffsetWriter(f, d[0]), io.LimitReader(u.r, d[1])); err == nil &&
			n != d[1] {
			err = fmt.Errorf("%w: it ends too early", errArchive)
		}
	}
	if err == nil {
		err = endow(f, *e.File)
	}
	return errors.Join(err, f.Close())
}

// endow sets the attributes of an inode.
func endow(f *os.File, n layerInode) error {
	for name, value := range n.Xattrs {
		if err := sys.SetXattr(f, name, value); err != nil {
			return err
		}
	}
	return errors.Join(sys.Chmod(f, n.Mode), sys.SetMtime(f, n.Mtime))
}
