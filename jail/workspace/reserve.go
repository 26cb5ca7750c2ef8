package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// An image is sparse: it takes disk blocks while its layer is written. So that no live layer runs
// out of them, the live layers together reserve no more than the disk has. <store>/.live/id-<id> is
// the reservation of a layer that may be written: a file of holes, as long as upper.img may become.
// A process that finds a reservation without a live image removes it.
const (
	liveDir = ".live"
	// liveLock is the lock file in liveDir, held from the check of the disk until the new image is
	// locked.
	liveLock = "lock"
)

// livePrefix is the prefix of reservations, so that no id is taken for liveLock.
const livePrefix = "id-"

// reserve reserves need bytes of the disk for the layer id, whose image takes has bytes already.
// The caller makes and locks the image before unlock. The error is ErrNoSpace if the live layers
// and this one may take more than is free. limit is for its text.
func (s *Store) reserve(id string, need, limit, has int64) (unlock func(), err error) {
	dir, unlock, err := s.lockLive()
	if err != nil {
		return nil, err
	}
	if err := s.promise(dir, id, need, limit, has); err != nil {
		unlock()
		return nil, errors.Join(err, s.unreserve(id))
	}
	return unlock, nil
}

// sweepLive removes the reservations of layers that are not live.
func (s *Store) sweepLive() error {
	dir, unlock, err := s.lockLive()
	if err != nil {
		return err
	}
	defer unlock()
	_, err = s.unwritten(dir)
	return err
}

// lockLive opens the directory of the reservations and takes its lock. unlock releases both.
func (s *Store) lockLive() (dir *os.File, unlock func(), err error) {
	if err := sys.MkdirAt(s.dir, liveDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, nil, err
	}
	if dir, err = sys.OpenSubdir(s.dir, liveDir); err != nil {
		return nil, nil, err
	}
	lock, err := lockFile(dir, liveLock, waitLock)
	if err != nil {
		dir.Close()
		return nil, nil, err
	}
	return dir, func() { closeAll(lock, dir) }, nil
}

// promise makes the reservation of need bytes for the layer id, whose image takes has bytes
// already. The error is ErrNoSpace if too little is free.
func (s *Store) promise(dir *os.File, id string, need, limit, has int64) error {
	promised, err := s.unwritten(dir)
	if err != nil {
		return err
	}
	free, err := sys.FreeBytes(dir)
	if err != nil {
		return err
	}
	if free-promised < need-has {
		return fmt.Errorf(
			"%w: the disk of the state directory %s has %s left, of which shadows that are being "+
				"written may still take %s; "+
				"a shadow of %s needs %s", ErrNoSpace, Name(s.dir.Name()), size(free),
			size(promised),
			size(limit), size(need-has))
	}
	f, err := sys.OpenBeneath(dir, livePrefix+id, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(need), f.Close())
}

// unwritten returns how many bytes the live layers may still take. It removes the reservations of
// layers that are not live.
func (s *Store) unwritten(dir *os.File) (sum int64, err error) {
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		id, ok := strings.CutPrefix(name, livePrefix)
		if !ok {
			continue
		}
		most, err := sys.LstatAt(dir, name)
		if errors.Is(err, fs.ErrNotExist) {
			// Its layer was frozen meanwhile.
			continue
		}
		if err != nil {
			return 0, err
		}
		rest, live, err := s.rest(id, most.Size)
		if err == nil && !live {
			err = removeAt(dir, name)
		}
		if err != nil {
			return 0, err
		}
		sum += rest
	}
	return sum, nil
}

// rest returns how many of most bytes the layer id has not taken yet, and whether it is live.
func (s *Store) rest(id string, most int64) (bytes int64, live bool, err error) {
	image, err := sys.OpenBeneath(s.dir, path.Join(id, "upper.img"), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	defer image.Close()
	if err := sys.Lock(image, false); !errors.Is(err, syscall.EWOULDBLOCK) {
		return 0, false, err
	}
	st, err := sys.Fstat(image)
	return max(0, most-st.Blocks*512), true, err
}

// Release removes the reservation of a workspace whose jail has ended. It waits up to ten seconds
// for the kernel to release the layer's loop device. Until then the layer counts as live.
func (s *Store) Release(id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	if err := s.unreserve(id); err != nil {
		return err
	}
	return retry(context.Background(), nil, func() error {
		_, live, err := s.rest(id, 0)
		if err == nil && live {
			err = errRetry
		}
		return err
	})
}

// unreserve removes the reservation of the layer id, if there is one.
func (s *Store) unreserve(id string) error {
	return removeAt(s.dir, path.Join(liveDir, livePrefix+id))
}

// Room returns how many bytes and files can still be written to the upper layer. Zero means that
// the limit is reached.
func (w *Workspace) Room() (bytes, files int64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.layer.mount == nil {
		return 0, 0, w.wrap("room", ErrState)
	}
	bytes, files, err = sys.Room(w.layer.mount)
	if w.layer.loop != nil {
		// A write that needs a new extent block fails while one block is free.
		bytes = max(0, bytes-blockSize)
	}
	return bytes, files, w.wrap("room", err)
}

// Device returns the loop device of the upper layer, nil for a layer in memory. The workspace
// closes it, not the caller.
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

// ReadOnly reports whether a directory is mounted read-only, so that no commit to it is possible.
func ReadOnly(dir *os.File) (bool, error) { return sys.ReadOnly(dir) }
