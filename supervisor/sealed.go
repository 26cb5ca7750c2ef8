package supervisor

import (
	"crypto/sha256"
	"os"
	"sync"
	"syscall"

	"github.com/jail-sandbox/jail/jail/launch"
)

// sealedModules keeps the verified bytes of installed modules in sealed memory files, which nobody can change any more, so that a daemon reads and
// hashes a module once and every run gets the very bytes that were verified. A file on the disk that is another than then, or was written
// since, is verified anew.
type sealedModules struct {
	mu  sync.Mutex
	all map[string]sealedModule // by path
}

type sealedModule struct {
	stamp fileStamp
	tool  tool
	file  *os.File
}

// A fileStamp says which file it is and when it, its owner or its mode was last changed.
type fileStamp struct {
	dev, ino     uint64
	size         int64
	mtime, ctime syscall.Timespec
}

func stampOf(path string) (fileStamp, error) {
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil {
		return fileStamp{}, &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	return fileStamp{st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim}, nil
}

// get returns the module at path as it was verified, with a descriptor of its own, if the file is still the one that was.
func (s *sealedModules) get(path string) (tool, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.all[path]
	if !ok {
		return tool{}, false
	}
	now, err := stampOf(path)
	if err == nil && now == m.stamp {
		if m.tool.module, err = launch.Reopen(m.file); err == nil {
			return m.tool, true
		}
	}
	m.file.Close()
	delete(s.all, path)
	return tool{}, false
}

// of returns a descriptor of the installed module of that digest, if it is one that was verified. Which file it came from does not matter: its bytes do.
func (s *sealedModules) of(sum [sha256.Size]byte) (*os.File, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.all {
		if m.tool.sum == sum {
			f, err := launch.Reopen(m.file)
			return f, err == nil
		}
	}
	return nil, false
}

// put remembers a module that was verified, with the stamp that its file had before.
func (s *sealedModules) put(path string, before fileStamp, t tool) error {
	file, err := launch.Reopen(t.module)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]sealedModule{}
	}
	if old, ok := s.all[path]; ok {
		old.file.Close()
	}
	t.module = nil
	s.all[path] = sealedModule{before, t, file}
	return nil
}
