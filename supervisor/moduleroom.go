package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The cache of compiled modules keeps below a bound: whoever stores an entry takes away those that were used longest ago. An entry is mounted into jails,
// and read by them whenever they first need it, so one that a run uses stays until that run is over. Runs of other daemons count as well: after an upgrade
// two have one cache for a while. So what is in use is said by locks, which the kernel keeps, and drops with the process. They are on a file of their own: what is mounted
// into a jail can be locked from inside.
//
//	<dir>/lock   byte 0    held by who takes entries away, or puts one in its place
//	             others    one for each entry, shared by the runs that use it
//
// An entry was last used at the time of its directory. It is not its file's, which its seal is over.
const (
	lockName   = "lock"
	markEvery  = time.Minute // how exactly that is known
	leftAfter  = time.Hour   // an entry that nobody has put in its place by then is left by a daemon that was killed
	leastEntry = 1 << 20     // what an entry counts as at least, in bytes: it has inodes, too, and there is a bound to how many are looked at
)

// defaultCache is how much compiled modules take of the disk, in bytes, where nothing else is said.
const defaultCache = 4 << 30

// Commands of fcntl(2), which package syscall has no names for.
const (
	setLock     = 37 // F_OFD_SETLK
	setLockWait = 38 // F_OFD_SETLKW
)

// A cacheHold keeps the entries where they are that were looked for with it, until it is closed. It is not safe for concurrent use.
type cacheHold struct{ lock *os.File }

func (h *cacheHold) close() {
	if h != nil && h.lock != nil {
		h.lock.Close()
		h.lock = nil
	}
}

func (h *cacheHold) keep(c *moduleCache, dir string) error {
	at, err := lockOf(filepath.Base(dir))
	if err == nil && h.lock == nil {
		h.lock, err = c.openLock()
	}
	if err != nil {
		return err
	}
	return lockByte(h.lock, setLockWait, syscall.F_RDLCK, at)
}

func (c *moduleCache) openLock() (*os.File, error) {
	return os.OpenFile(filepath.Join(c.dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
}

// changing waits until nobody else changes which entries there are. The file that it returns is to be closed.
func (c *moduleCache) changing() (*os.File, error) {
	lock, err := c.openLock()
	if err != nil {
		return nil, err
	}
	if err := lockByte(lock, setLockWait, syscall.F_WRLCK, 0); err != nil {
		lock.Close()
		return nil, err
	}
	return lock, nil
}

// lockOf is the byte of the lock that stands for an entry. Two entries may have the same: both are in use then when one is.
func lockOf(key string) (int64, error) {
	const digits = 15
	n, err := strconv.ParseInt(key[:min(len(key), digits)], 16, 64)
	return 1 + n, err
}

func lockByte(f *os.File, how int, kind int16, at int64) error {
	for {
		err := syscall.FcntlFlock(f.Fd(), how, &syscall.Flock_t{Type: kind, Start: at, Len: 1})
		if err == nil {
			return nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return &fs.PathError{Op: "fcntl", Path: f.Name(), Err: err}
		}
	}
}

// mark says that an entry is used now.
func (c *moduleCache) mark(dir string) error {
	info, err := os.Stat(dir)
	if err != nil || time.Since(info.ModTime()) < markEvery {
		return err
	}
	now := time.Now()
	return os.Chtimes(dir, now, now)
}

// An entryRoom is what an entry takes of the disk.
type entryRoom struct {
	path string
	used time.Time
	size int64
}

// shrink takes away the entries that were used longest ago until the others fit, and what killed daemons have left. lock is what changing returned.
func (c *moduleCache) shrink(lock *os.File) error {
	all, total, err := c.room()
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b entryRoom) int { return a.used.Compare(b.used) })
	for _, e := range all {
		if strings.HasPrefix(filepath.Base(e.path), unplaced) {
			if time.Since(e.used) > leftAfter {
				total -= e.size
				err = errors.Join(err, os.RemoveAll(e.path))
			}
			continue
		}
		if total <= c.most {
			continue
		}
		gone, failed := c.free(lock, e.path)
		if err = errors.Join(err, failed); gone {
			total -= e.size
		}
	}
	if err != nil {
		return fmt.Errorf("room for compiled modules: %w", err)
	}
	return nil
}

// free takes an entry away that no run uses.
func (c *moduleCache) free(lock *os.File, dir string) (gone bool, err error) {
	at, err := lockOf(filepath.Base(dir))
	if err != nil {
		return false, nil // no entry of ours
	}
	err = lockByte(lock, setLock, syscall.F_WRLCK, at)
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	err = os.RemoveAll(dir)
	return err == nil, errors.Join(err, lockByte(lock, setLock, syscall.F_UNLCK, at))
}

// room says what the entries take, those too that are being written.
func (c *moduleCache) room() (all []entryRoom, total int64, err error) {
	found, err := os.ReadDir(c.dir)
	if err != nil {
		return nil, 0, err
	}
	for _, d := range found {
		if !d.IsDir() {
			continue
		}
		e := entryRoom{path: filepath.Join(c.dir, d.Name())}
		err := filepath.WalkDir(e.path, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err == nil && path == e.path {
				e.used = info.ModTime()
			} else if err == nil && info.Mode().IsRegular() {
				e.size += info.Size()
			}
			return err
		})
		if errors.Is(err, fs.ErrNotExist) {
			continue // put in its place, or given up, in this moment
		}
		if err != nil {
			return nil, 0, err
		}
		e.size = max(e.size, leastEntry)
		all, total = append(all, e), total+e.size
	}
	return all, total, nil
}
