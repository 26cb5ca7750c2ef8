package workspace

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A logged is one request to a disk: a write, or, with no data, a flush of its cache.
type logged struct {
	at   int64
	data []byte
}

const pageSize = 4096

// A virtual disk holds its pages in memory; those that were never written are zeros.
type virtualDisk struct {
	size  int64
	pages map[int64]*[pageSize]byte
	log   []logged
}

func (d *virtualDisk) read(at int64, buf []byte) {
	for n := 0; n < len(buf); {
		page, off := (at+int64(n))/pageSize, int((at+int64(n))%pageSize)
		part := buf[n:min(len(buf), n+pageSize-off)]
		if p := d.pages[page]; p != nil {
			copy(part, p[off:])
		} else {
			clear(part)
		}
		n += len(part)
	}
}

// write never changes a page in place: other disks may share it.
func (d *virtualDisk) write(at int64, data []byte) {
	for len(data) > 0 {
		page, off := at/pageSize, at%pageSize
		fresh := new([pageSize]byte)
		if p := d.pages[page]; p != nil {
			*fresh = *p
		}
		n := copy(fresh[off:], data)
		d.pages[page] = fresh
		at, data = at+int64(n), data[n:]
	}
}

// A diskServer shows virtual disks as files, by the protocol of FUSE (linux/fuse.h), so that loop
// devices can be made of them and every write and flush is seen.
type diskServer struct {
	t     *testing.T
	fd    int
	dir   string
	mu    sync.Mutex
	disks map[string]*virtualDisk
	// The node of the n-th is n+2.
	names []string
}

const (
	fuseLookup, fuseForget, fuseGetattr, fuseSetattr, fuseOpen, fuseRead, fuseWrite = 1, 2, 3, 4,
		14, 15, 16
	fuseRelease, fuseFsync, fuseFlush, fuseInit, fuseBatchForget, fuseInterrupt = 18, 20, 25,
		26, 42, 36
)

func serveDisks(t *testing.T, dir string) *diskServer {
	t.Helper()
	fd, err := syscall.Open("/dev/fuse", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("/dev/fuse: %v", err)
	}
	s := &diskServer{t: t, fd: fd, dir: dir, disks: map[string]*virtualDisk{}}
	must(t, syscall.Mount("disks", dir, "fuse", 0,
		fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd)))
	go s.serve()
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	return s
}

func (s *diskServer) add(name string, d *virtualDisk) (path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disks[name] = d
	s.names = append(s.names, name)
	return filepath.Join(s.dir, name)
}

func (s *diskServer) serve() {
	runtime.LockOSThread()
	// By nobody else, or the number could be another's while it is read here.
	defer syscall.Close(s.fd)
	buf := make([]byte, 1<<20)
	for {
		n, err := syscall.Read(s.fd, buf)
		switch err {
		case nil:
		case syscall.EINTR, syscall.ENOENT, syscall.EAGAIN:
			continue
		default:
			return // unmounted
		}
		op, unique, node := binary.LittleEndian.Uint32(buf[4:]),
			binary.LittleEndian.Uint64(buf[8:]), binary.LittleEndian.Uint64(buf[16:])
		if op == fuseForget || op == fuseBatchForget || op == fuseInterrupt {
			continue
		}
		out, errno := s.answer(op, node, buf[40:n])
		head := binary.LittleEndian.AppendUint32(nil, uint32(16+len(out)))
		head = binary.LittleEndian.AppendUint32(head, uint32(-int32(errno)))
		head = binary.LittleEndian.AppendUint64(head, unique)
		syscall.Write(s.fd, append(head, out...))
	}
}

func (s *diskServer) answer(op uint32, node uint64, in []byte) (out []byte, errno syscall.Errno) {
	s.mu.Lock()
	defer s.mu.Unlock()
	le := binary.LittleEndian
	var d *virtualDisk
	if i := int(node) - 2; i >= 0 && i < len(s.names) {
		d = s.disks[s.names[i]]
	}
	switch op {
	case fuseInit:
		out = make([]byte, 64)
		le.PutUint32(out, 7)
		le.PutUint32(out[4:], 31)
		le.PutUint32(out[8:], 128<<10) // read ahead
		le.PutUint32(out[20:], 128<<10)
		return out, 0
	case fuseLookup:
		name := string(bytes.TrimRight(in, "\x00"))
		for i, n := range s.names {
			if n == name {
				out = le.AppendUint64(nil, uint64(i+2))
				out = append(out, make([]byte, 32)...)
				return append(out, attributes(uint64(i+2), s.disks[n])...), 0
			}
		}
		return nil, syscall.ENOENT
	case fuseGetattr, fuseSetattr:
		return append(make([]byte, 16), attributes(node, d)...), 0
	case fuseOpen:
		out = make([]byte, 16)
		// FOPEN_DIRECT_IO: no cache of the kernel's between the disk and its log
		out[8] = 1
		return out, 0
	case fuseRead:
		at, size := int64(le.Uint64(in[8:])), int64(le.Uint32(in[16:]))
		out = make([]byte, max(0, min(size, d.size-at)))
		d.read(at, out)
		return out, 0
	case fuseWrite:
		at, size := int64(le.Uint64(in[8:])), le.Uint32(in[16:])
		data := bytes.Clone(in[40 : 40+size])
		d.write(at, data)
		d.log = append(d.log, logged{at, data})
		return append(le.AppendUint32(nil, size), 0, 0, 0, 0), 0
	case fuseFsync:
		d.log = append(d.log, logged{})
		return nil, 0
	case fuseRelease, fuseFlush:
		return nil, 0
	}
	return nil, syscall.ENOSYS
}

// attributes are a struct fuse_attr.
func attributes(node uint64, d *virtualDisk) []byte {
	le := binary.LittleEndian
	out := make([]byte, 88)
	le.PutUint64(out, node)
	le.PutUint32(out[60:], syscall.S_IFDIR|0o755)
	if d != nil {
		le.PutUint64(out[8:], uint64(d.size))
		le.PutUint32(out[60:], syscall.S_IFREG|0o600)
	}
	le.PutUint32(out[64:], 1)
	le.PutUint32(out[80:], pageSize)
	return out
}

// logLength is how much was written so far.
func (s *diskServer) logLength(d *virtualDisk) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(d.log)
}

// unmount waits for processes that have just ended.
func (d *disk) unmount() {
	d.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		err := syscall.Unmount(d.dir, 0)
		if err == nil {
			return
		}
		if err != syscall.EBUSY || time.Now().After(end) {
			d.t.Fatalf("unmount %s: %v: %s", d.dir, err, strings.TrimSpace(hostState(d.t)))
		}
	}
}
