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
// out of them, the live layers together reserve no more than the disk has. <store>/.live/<id> is
// the reservation of one that may be written; its length is the most bytes that upper.img may take.
// It is empty. A process that finds a reservation without a live image removes it.
const (
	liveDir = ".live"
	// liveLock is the lock file in liveDir, held from the check of the disk until the new image is
	// locked.
	liveLock = "lock"
)

// livePrefix keeps the names of layers apart from liveLock.
const livePrefix = "id-"

// reserve reserves need bytes of the disk for the layer id, which has some of them already. The
// caller makes and locks the image before unlock. The error is ErrNoSpace if the live layers and
// this one may take more than is free; limit is for its text.
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

// sweepLive removes the reservations of layers whose process has died.
func (s *Store) sweepLive() error {
	dir, unlock, err := s.lockLive()
	if err != nil {
		return err
	}
	defer unlock()
	_, err = s.unwritten(dir)
	return err
}

// lockLive opens and locks the directory of the reservations, until unlock.
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

// promise writes down that the layer id may take need bytes, of which it has some already.
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

// unwritten returns the number of bytes that the live layers may still take, and removes
// reservations without a layer.
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

// rest returns the part of most that the layer id has not taken yet, if it lives.
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

// Release removes the reservation of the layer of a run whose jail is gone. It gives the kernel ten
// seconds to release the layer's loop device, which comes after the end of the jail's last process:
// until then the layer counts as written.
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

// unreserve removes the reservation: nothing is written to the layer any more.
func (s *Store) unreserve(id string) error {
	return removeAt(s.dir, path.Join(liveDir, livePrefix+id))
}

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
