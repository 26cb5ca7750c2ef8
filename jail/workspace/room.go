package workspace

import (
	"os"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// Room returns the bytes and files that the upper layer still takes. Zero means that the limit was
// met: the tool was refused more.
func (w *Workspace) Room() (bytes, files int64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.layer.mount == nil {
		return 0, 0, w.wrap("room", ErrState)
	}
	bytes, files, err = sys.Room(w.layer.mount)
	if w.layer.loop != nil {
		// One block of content is refused where its tree of extents needs another.
		bytes = max(0, bytes-blockSize)
	}
	return bytes, files, w.wrap("room", err)
}

// Device returns the block device of the upper layer, nil for a layer in memory. The workspace
// closes it.
func (w *Workspace) Device() (*os.File, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.layer.memory:
		return nil, nil
	case w.layer.loop == nil:
		return nil, w.wrap("device", ErrState)
	}
	return w.layer.loop, nil
}

// ReadOnly reports whether no commit can be made to a directory, since it is mounted read-only.
func ReadOnly(dir *os.File) (bool, error) { return sys.ReadOnly(dir) }
