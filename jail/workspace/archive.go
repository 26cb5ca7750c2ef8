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

// archived is an entry of an archive. An archive is an upper layer in one file: a JSON line for
// each entry in the order of a walk, followed by the bytes of a regular file without its holes, and
// a last line that marks the file as complete. It has names and no paths, so that no entry leads
// out of the layer.
//
//	{"dir":{…}}                      the root
//	{"name":"YQ==","file":{…},"data":[[0,3]]}
//	abc{"name":"ZA==","dir":{…}}
//	{"up":true}
//	{"end":true}
type archived struct {
	// Name is bytes, since a name need not be UTF-8.
	Name []byte      `json:"name,omitempty"`
	Dir  *layerInode `json:"dir,omitempty"`
	File *layerInode `json:"file,omitempty"`
	// Link is the target of a symbolic link, White a deletion, Odd the type of an entry that a
	// commit refuses: a FIFO or a socket.
	Link  *layerLink `json:"link,omitempty"`
	White bool       `json:"white,omitempty"`
	Odd   uint32     `json:"odd,omitempty"`
	// Same is the number of an earlier file of the archive, from 1 on, of which this is another
	// hard link.
	Same int  `json:"same,omitempty"`
	Up   bool `json:"up,omitempty"`
	End  bool `json:"end,omitempty"`

	// Data are the offsets and lengths of the ranges that are no holes.
	Data [][2]int64 `json:"data,omitempty"`
}

// layerInode has the attributes of a file or directory.
type layerInode struct {
	Mode   uint32            `json:"mode"`
	Mtime  sys.Time          `json:"mtime"`
	Size   int64             `json:"size,omitempty"`
	Xattrs map[string][]byte `json:"xattrs,omitempty"`
}

type layerLink struct {
	Target []byte `json:"target"`
}

// maxExtents bounds the ranges of one file; holes between later ranges are written as zeros.
const maxExtents = 4096

type archiver struct {
	w     *bufio.Writer
	files int
	// seen are the files with several links, by inode.
	seen map[uint64]int
}

// writeArchive writes the tree below upper to f as an archive and syncs f.
func writeArchive(f, upper *os.File) error {
	a := &archiver{w: bufio.NewWriterSize(f, 1<<16), seen: map[uint64]int{}}
	err := a.dir(nil, upper, 0)
	if err == nil {
		// The writer keeps its first error.
		_ = a.line(archived{End: true})
		err = a.w.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		err = fmt.Errorf("write the layer down: %w", err)
	}
	return err
}

func (a *archiver) line(e archived) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = a.w.Write(append(text, '\n'))
	return err
}

func (a *archiver) dir(name []byte, dir *os.File, depth int) error {
	st, err := sys.Fstat(dir)
	if err != nil {
		return err
	}
	node, err := layerInodeOf(dir, st)
	if err != nil {
		return err
	}
	if err := a.line(archived{Name: name, Dir: node}); err != nil {
		return err
	}
	// A review goes no deeper than maxDepth. One level more shows that there is more.
	if depth <= maxDepth+1 {
		names, err := dir.Readdirnames(-1)
		if err != nil {
			return err
		}
		for _, n := range names {
			if err := a.entry(dir, n, depth); err != nil {
				return err
			}
		}
	}
	return a.line(archived{Up: true})
}

func (a *archiver) entry(dir *os.File, name string, depth int) error {
	st, err := sys.LstatAt(dir, name)
	if err != nil {
		return err
	}
	switch st.Type() {
	case syscall.S_IFDIR:
		sub, err := sys.OpenSubdir(dir, name)
		if err != nil {
			return err
		}
		defer sub.Close()
		return a.dir([]byte(name), sub, depth+1)
	case syscall.S_IFREG:
		return a.file(dir, name)
	case syscall.S_IFLNK:
		target, err := sys.ReadlinkAt(dir, name)
		if err != nil {
			return err
		}
		return a.line(archived{Name: []byte(name), Link: &layerLink{[]byte(target)}})
	}
	if whiteout(st) {
		return a.line(archived{Name: []byte(name), White: true})
	}
	return a.line(archived{Name: []byte(name), Odd: st.Type()})
}

func (a *archiver) file(dir *os.File, name string) error {
	f, err := openRegular(dir, name)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := sys.Fstat(f)
	if err != nil {
		return err
	}
	if n := a.seen[st.Ino]; n > 0 {
		return a.line(archived{Name: []byte(name), Same: n})
	}
	a.files++
	if st.Nlink > 1 {
		a.seen[st.Ino] = a.files
	}
	e := archived{Name: []byte(name)}
	if e.File, err = layerInodeOf(f, st); err != nil {
		return err
	}
	e.File.Size = st.Size
	err = eachData(f, func(start, end int64) error {
		if last := len(e.Data) - 1; last >= maxExtents-1 {
			e.Data[last][1] = end - e.Data[last][0]
			return nil
		}
		e.Data = append(e.Data, [2]int64{start, end - start})
		return nil
	})
	if err != nil {
		return err
	}
	if err := a.line(e); err != nil {
		return err
	}
	for _, d := range e.Data {
		if n, err := io.Copy(a.w, io.NewSectionReader(f, d[0], d[1])); err != nil || n != d[1] {
			return errors.Join(err, fmt.Errorf("%s: %d bytes of %d", Name(name), n, d[1]))
		}
	}
	return nil
}

func layerInodeOf(f *os.File, st sys.Stat) (*layerInode, error) {
	n := &layerInode{Mode: st.Perm(), Mtime: st.Mtime}
	names, err := sys.Xattrs(f)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		value, err := sys.Xattr(f, name)
		if err != nil {
			return nil, err
		}
		if n.Xattrs == nil {
			n.Xattrs = map[string][]byte{}
		}
		n.Xattrs[name] = value
	}
	return n, nil
}

// errArchive is returned for a file that is no complete archive.
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
	// node is set after the entries are made, since they change the mtime, and the mode may forbid
	// to make them.
	node layerInode
}

// readArchive makes the entries of the archive f below upper, an empty directory.
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
	f, err := newFile(in.f, name)
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

// endow sets the extended attributes, mode and mtime of an open file or directory.
func endow(f *os.File, n layerInode) error {
	for name, value := range n.Xattrs {
		if err := sys.SetXattr(f, name, value); err != nil {
			return err
		}
	}
	return errors.Join(sys.Chmod(f, n.Mode), sys.SetMtime(f, n.Mtime))
}
