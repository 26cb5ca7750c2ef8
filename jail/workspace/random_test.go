package workspace

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// A toolOp is one thing that a tool does; what fails, fails.
type toolOp struct {
	Do   string
	Path string
	Arg  string
}

func (o toolOp) run() {
	switch o.Do {
	case "write":
		os.WriteFile(o.Path, []byte(o.Arg), 0o644)
	case "append":
		if f, err := os.OpenFile(o.Path, os.O_WRONLY|os.O_APPEND, 0); err == nil {
			f.WriteString(o.Arg)
			f.Close()
		}
	case "mkdir":
		os.Mkdir(o.Path, 0o755)
	case "remove":
		os.RemoveAll(o.Path)
	case "rename":
		os.Rename(o.Path, o.Arg)
	case "symlink":
		os.Symlink(o.Arg, o.Path)
	case "link":
		os.Link(o.Path, o.Arg)
	case "fifo":
		os.Remove(o.Path)
		syscall.Mkfifo(o.Path, 0o644)
	case "socket":
		if l, err := net.Listen("unix", o.Path); err == nil {
			l.(*net.UnixListener).SetUnlinkOnClose(false)
			l.Close()
		}
	case "device":
		syscall.Mknod(o.Path, syscall.S_IFCHR|0o666, 1<<8|3)
	case "setid":
		syscall.Chmod(o.Path, 0o6755)
	case "xattr":
		name, value, _ := strings.Cut(o.Arg, "=")
		syscall.Setxattr(o.Path, name, []byte(value), 0)
	case "sparse":
		if f, err := os.Create(o.Path); err == nil {
			size, _ := strconv.ParseInt(o.Arg, 10, 64)
			f.Truncate(size - 1)
			f.WriteAt([]byte("x"), size-1)
			f.Close()
		}
	case "deep":
		home, _ := os.Open(".")
		for n, _ := strconv.Atoi(o.Arg); n > 0; n-- {
			syscall.Mkdir(o.Path, 0o755)
			syscall.Chdir(o.Path)
		}
		home.Chdir()
	case "chmod":
		var mode uint32
		fmt.Sscanf(o.Arg, "%o", &mode)
		os.Chmod(o.Path, fs.FileMode(mode))
	}
}

// snapshotText describes a tree: type, mode, content of everything in it.
func snapshotText(root string) string {
	var b strings.Builder
	filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, path)
		if err != nil {
			fmt.Fprintf(&b, "%q error\n", rel)
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			fmt.Fprintf(&b, "%q dir %04o\n", rel, info.Mode().Perm())
		case info.Mode()&fs.ModeSymlink != 0:
			target, _ := os.Readlink(path)
			fmt.Fprintf(&b, "%q link %q\n", rel, target)
		case !info.Mode().IsRegular():
			fmt.Fprintf(&b, "%q %v\n", rel, info.Mode())
		case info.Size() > 1<<20:
			fmt.Fprintf(&b, "%q huge\n", rel)
		default:
			content, err := os.ReadFile(path)
			fmt.Fprintf(&b, "%q file %04o %q %v\n", rel, info.Mode().Perm(), content, err)
		}
		return nil
	})
	return b.String()
}
