package modules

import (
	"crypto/sha256"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/launch"
)

// A Sealed caches the verified bytes of modules in sealed memory files (memfd_create(2)), which
// cannot change, each with a value of the caller's. So a daemon reads and hashes a module once, and
// every run gets exactly the verified bytes. A module whose file on disk has changed must be
// verified again. Modules with the same bytes share one memory file.
type Sealed[T any] struct {
	// Most bounds the total size in bytes, with nameSize for each name. The least recently used
	// modules are dropped. 0 means no bound.
	Most int64

	mu  sync.Mutex
	all map[string]*sealedModule[T]
	// uses counts the calls that used a module.
	uses int64
}

type sealedModule[T any] struct {
	stamp Stamp
	about T
	*sealedFile
	// used is the value of uses at the last use.
	used int64
}

// A sealedFile is a memory file, shared by the modules with the same digest.
type sealedFile struct {
	file *os.File
	sum  [sha256.Size]byte
	// names counts the modules that share the file.
	names int
}

// nameSize is the size that a name counts as, in bytes.
const nameSize = 4 << 10

// A Stamp identifies a file and the last change of its content, owner or mode.
type Stamp struct {
	dev, ino     uint64
	size         int64
	mtime, ctime syscall.Timespec
}

// StampOf returns the stamp of the file at path.
func StampOf(path string) (Stamp, error) {
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil {
		return Stamp{}, &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	return stampOf(&st), nil
}

// StampOfInfo returns the stamp of the file that info describes.
func StampOfInfo(info fs.FileInfo) Stamp { return stampOf(info.Sys().(*syscall.Stat_t)) }

func stampOf(st *syscall.Stat_t) Stamp { return Stamp{st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim} }

// Settled reports whether the last change is so old that the next one is sure to have another time.
func (s Stamp) Settled() bool { return time.Since(time.Unix(s.ctime.Unix())) >= settledAfter }

// Get returns the value that was put under name and a new descriptor of the module's bytes. ok is
// false if there is none or if now, the current stamp of its file, differs from the verified
// file's.
func (s *Sealed[T]) Get(name string, now Stamp) (about T, file *os.File, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.all[name]
	if !ok {
		return about, nil, false
	}
	if now == m.stamp {
		if file, err := launch.Reopen(m.file); err == nil {
			s.uses++
			m.used = s.uses
			return m.about, file, true
		}
	}
	s.forget(name)
	return about, nil, false
}

// forget drops a name, and closes its memory file if no other name uses it. s.mu is held.
func (s *Sealed[T]) forget(name string) {
	m := s.all[name]
	if m == nil {
		return
	}
	delete(s.all, name)
	if m.names--; m.names == 0 {
		m.file.Close()
	}
}

// BySum returns a new descriptor of the verified module with that SHA-256 digest, and false if
// there is none.
func (s *Sealed[T]) BySum(sum [sha256.Size]byte) (*os.File, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.all {
		if m.sum == sum {
			f, err := launch.Reopen(m.file)
			return f, err == nil
		}
	}
	return nil, false
}

// Put stores a verified module under name: the stamp of its file before it was read, the digest of
// its bytes, and the value about. It copies the descriptor: the caller closes file.
func (s *Sealed[T]) Put(name string, before Stamp, sum [sha256.Size]byte, file *os.File,
	about T) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]*sealedModule[T]{}
	}
	var shared *sealedFile
	for _, m := range s.all {
		if m.sum == sum {
			shared = m.sealedFile
		}
	}
	if shared == nil {
		own, err := launch.Reopen(file)
		if err != nil {
			return err
		}
		shared = &sealedFile{file: own, sum: sum}
	}
	shared.names++
	s.forget(name)
	s.uses++
	s.all[name] = &sealedModule[T]{before, about, shared, s.uses}
	s.shrink()
	return nil
}

// shrink drops the least recently used modules until the rest is within the bound. s.mu is held.
func (s *Sealed[T]) shrink() {
	for s.Most > 0 {
		oldest, total := "", int64(0)
		for name, m := range s.all {
			total += nameSize + m.stamp.size/int64(m.names)
			if oldest == "" || m.used < s.all[oldest].used {
				oldest = name
			}
		}
		if total <= s.Most {
			return
		}
		s.forget(oldest)
	}
}

// A Digests remembers the SHA-256 digests of programs while their files stay unchanged.
type Digests struct {
	mu  sync.Mutex
	all map[Stamp][sha256.Size]byte
}

// maxDigests bounds how many digests are remembered. settledAfter is how old a change of a file
// must be so that the next change has another time.
const (
	maxDigests   = 256
	settledAfter = 5 * time.Second
)

// Of returns the digest of the first limit bytes of f, which info describes.
func (d *Digests) Of(f *os.File, info fs.FileInfo, limit int64) (sum [sha256.Size]byte, err error) {
	stamp := StampOfInfo(info)
	d.mu.Lock()
	sum, ok := d.all[stamp]
	d.mu.Unlock()
	if ok {
		return sum, nil
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, limit)); err != nil {
		return sum, err
	}
	h.Sum(sum[:0])
	if !stamp.Settled() {
		return sum, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all == nil || len(d.all) >= maxDigests {
		d.all = map[Stamp][sha256.Size]byte{}
	}
	d.all[stamp] = sum
	return sum, nil
}
