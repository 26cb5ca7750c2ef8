package workspace

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// archived is an entry of an archive. An archive is an upper layer in one file: a JSON line for
// each entry in the order of a walk, after that of a regular file its bytes without holes, and a
// last line that marks the file as complete. It has no paths, so no entry leads elsewhere: a reader
// goes down and up by the entries.
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

// layerInode are the attributes of a file or directory.
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

// writeArchive writes the layer below upper to f and makes it durable.
func writeArchive(f, upper *os.File) error {
	a := &archiver{w: bufio.NewWriterSize(f, 1<<16), seen: map[uint64]int{}}
	if err := a.dir(nil, upper, 0); err != nil {
		return err
	}
	if err := a.line(archived{End: true}); err != nil {
		return err
	}
	if err := a.w.Flush(); err != nil {
		return err
	}
	return f.Sync()
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
