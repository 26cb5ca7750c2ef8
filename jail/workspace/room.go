package workspace

import (
	"os"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// Room returns how many bytes and how many files the upper layer still takes. Zero of one means that the limit was met.
func (w *Workspace) Room() (bytes, files int64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mount == nil {
		return 0, 0, w.wrap("room", ErrState)
	}
	bytes, files, err = sys.Room(w.mount)
	return bytes, files, w.wrap("room", err)
}

// Device returns the block device that the upper layer is on. It stays the workspace's to close.
func (w *Workspace) Device() (*os.File, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.loop == nil {
		return nil, w.wrap("device", ErrState)
	}
	return w.loop, nil
}
