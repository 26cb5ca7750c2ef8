package modules

import (
	"crypto/sha256"
	"os"
	"sync"
	"syscall"

	"github.com/jail-sandbox/jail/jail/launch"
)

// A Sealed keeps the verified bytes of installed modules in sealed memory files (memfd_create(2)),
// which nobody can change any more, and beside each what the caller found out about it. So a daemon
// reads and hashes a module once, and every run gets the very bytes that were verified. A module
// whose file on the disk was replaced or written since is verified anew.
type Sealed[T any] struct {
	mu  sync.Mutex
	all map[string]sealedModule[T] // by path
}

type sealedModule[T any] struct {
	stamp Stamp
	sum   [sha256.Size]byte
	about T
	file  *os.File
}

// A Stamp identifies a file and when its content, owner or mode was last changed.
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
	return Stamp{st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim}, nil
}

// Get returns what was put for the module at path, and a new descriptor of its bytes, if the file
// on the disk is still the one that was verified.
func (s *Sealed[T]) Get(path string) (about T, file *os.File, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.all[path]
	if !ok {
		return about, nil, false
	}
	now, err := StampOf(path)
	if err == nil && now == m.stamp {
		if file, err = launch.Reopen(m.file); err == nil {
			return m.about, file, true
		}
	}
	m.file.Close()
	delete(s.all, path)
	return about, nil, false
}

// BySum returns a new descriptor of the verified module with that SHA-256 digest, wherever its file
// is.
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

// Put remembers a module that was verified: the stamp that its file had before, the digest of its
// bytes and what is known about it. The caller keeps file.
func (s *Sealed[T]) Put(path string, before Stamp, sum [sha256.Size]byte, file *os.File,
	about T) error {
	file, err := launch.Reopen(file)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]sealedModule[T]{}
	}
	if old, ok := s.all[path]; ok {
		old.file.Close()
	}
	s.all[path] = sealedModule[T]{before, sum, about, file}
	return nil
}
