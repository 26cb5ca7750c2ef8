// Package modules caches WebAssembly modules and programs: compiled modules on disk, the verified
// bytes of installed modules in memory, and the digests of programs.
package modules

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/runners/wasi"
)

// A Cache stores compiled modules: machine code that a compiling jail makes from an untrusted
// module, and that other jails run later. An entry therefore is used only for the module that it was
// made from, is stored where only root writes, and has a seal that is checked at each use.
//
//	<dir>/secret            the key of the seals
//	<dir>/<key>/wazero-…/…  one entry, mounted read-only into the jail
//	<dir>/<key>/seal        over the entry's content, and, once settled, over its inode, size and times
//	<dir>/lock              byte 0 is locked while entries are added or removed;
//	                        one other byte per entry, with a shared lock by each run that uses it
//
// The size of the cache is bounded: Store removes the least recently used entries. An entry that a
// run uses, also a run of another daemon, stays until the run is over, since jails read the mounted
// entry at any time. The kernel drops the locks when a process ends. They are on a separate file,
// because code in a jail could lock a file that is mounted there.
//
// The modification time of an entry's directory is the time of its last use. The seal covers the
// time of its file.
type Cache struct {
	dir    string
	secret []byte
	// machine lists the processor features on which compiled code depends.
	machine string
	// settles is how old the last change of an entry must be for its file times to prove anything.
	settles time.Duration
	// most bounds the total size of the entries, in bytes.
	most int64
}

// Open opens the cache in dir, of at most most bytes; 0 means defaultCache.
func Open(dir string, most int64) (*Cache, error) {
	most = cmp.Or(most, defaultCache)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	machine, err := describeMachine()
	if err != nil {
		return nil, err
	}
	c := &Cache{dir: dir, machine: machine, settles: settledAfter, most: most}
	path := filepath.Join(dir, "secret")
	if c.secret, err = os.ReadFile(path); err == nil && len(c.secret) == sha256.Size {
		return c, nil
	}
	// Missing or cut short: with a new secret all entries are invalid, and are compiled again when
	// needed.
	if err == nil {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	c.secret = make([]byte, sha256.Size)
	rand.Read(c.secret)
	// If another daemon was faster, its secret counts.
	if err := atomicfile.Create(path, c.secret, 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	c.secret, err = os.ReadFile(path)
	return c, err
}

// describeMachine returns the line of /proc/cpuinfo with the processor's features.
func describeMachine() (string, error) {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "", err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if strings.HasPrefix(s.Text(), "flags") || strings.HasPrefix(s.Text(), "Features") {
			return s.Text(), nil
		}
	}
	return "", errors.New("/proc/cpuinfo does not name the processor's features")
}

// Path returns the directory of the compiled module, which may not exist.
func (c *Cache) Path(module [sha256.Size]byte) string {
	return filepath.Join(c.dir, wasi.CacheKey(module, c.machine))
}

const (
	sealName = "seal"
	// prefix of entries that are being written
	unplaced = "new-"
)

// Find returns the directory of the compiled module, which stays there while hold is open. ok is
// false if there is none. An entry that does not match its seal is removed.
func (c *Cache) Find(hold *Hold, module [sha256.Size]byte) (dir string, ok bool, err error) {
	dir = c.Path(module)
	if err := hold.keep(c, dir); err != nil {
		return dir, false, err
	}
	switch err = c.look(dir); {
	case err == nil:
		return dir, true, c.mark(dir)
	case !isUseless(err):
		return dir, false, err
	}
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return dir, false, nil
	}
	return dir, false, c.remove(dir)
}

func (c *Cache) look(dir string) error {
	entry, err := c.open(dir)
	if err != nil {
		return err
	}
	defer entry.Close()
	return c.check(dir, entry)
}

// isUseless reports whether err means that an entry is missing or does not match its seal.
func isUseless(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, wasi.ErrSeal)
}

// remove deletes an invalid entry, unless another run has replaced it by now.
func (c *Cache) remove(dir string) error {
	lock, err := c.changing()
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := c.look(dir); !isUseless(err) {
		return err
	}
	return os.RemoveAll(dir)
}

// check verifies the seal of an entry. A matching stamp is enough: it proves that the sealed file
// was not written since, and cannot be forged without the secret. Otherwise check reads the whole
// entry, such as in a copy of the state directory.
func (c *Cache) check(dir string, entry *os.File) error {
	seal, err := os.ReadFile(filepath.Join(dir, sealName))
	if err != nil {
		return err
	}
	content, stamp := seal[:min(len(seal), sha256.Size)], seal[min(len(seal), sha256.Size):]
	now, settled, err := c.stamp(dir, entry)
	if err != nil || settled && hmac.Equal(stamp, now) {
		return err
	}
	if err := wasi.CheckSeal(c.secret, filepath.Base(dir), entry, content); err != nil || !settled {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, sealName), append(content, now...), 0o600,
		atomicfile.Volatile)
}

// stamp returns a seal over an entry's inode, size and times. An unsettled stamp proves nothing:
// before Linux 6.13 file times advance in ticks, so two changes in one tick leave the same times.
func (c *Cache) stamp(dir string, f *os.File) (stamp []byte, settled bool, err error) {
	info, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	st := info.Sys().(*syscall.Stat_t)
	text := fmt.Sprint(st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim)
	stamp, err = wasi.Seal(c.secret, "stamp of "+filepath.Base(dir), strings.NewReader(text))
	return stamp, time.Since(time.Unix(st.Ctim.Unix())) >= c.settles, err
}

func (c *Cache) open(dir string) (*os.File, error) {
	found, err := filepath.Glob(filepath.Join(dir, "wazero-*", "*"))
	if err != nil {
		return nil, err
	}
	if len(found) != 1 {
		return nil, fs.ErrNotExist
	}
	return os.Open(found[0])
}

// entryName matches the engine's names of entries. The name comes from inside a jail, so any other
// is refused.
var entryName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^wazero-[A-Za-z0-9._-]{1,80}/[0-9a-f]{64}$`)
})

// MaxEntry bounds a compiled module, in bytes.
const MaxEntry = 512 << 20

// Store stores the output of a compiling jail: a line with the entry's name, then its bytes. It
// then removes entries until the cache fits its bound, possibly this one if nobody holds it.
func (c *Cache) Store(module [sha256.Size]byte, written []byte) error {
	name, entry, ok := bytes.Cut(written, []byte("\n"))
	if !ok || !entryName().Match(name) || len(entry) == 0 || len(entry) > MaxEntry {
		return errors.New("the compiling jail did not write a compiled module")
	}
	dir := c.Path(module)
	seal, err := wasi.Seal(c.secret, filepath.Base(dir), bytes.NewReader(entry))
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp(c.dir, unplaced)
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	path := filepath.Join(temp, string(name))
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	// The jail's users read it through a read-only mount.
	if err := errors.Join(os.WriteFile(path, entry, 0o444), os.Chmod(temp, 0o755)); err != nil {
		return err
	}
	// A new file has no settled stamp; check adds it later.
	if err := os.WriteFile(filepath.Join(temp, sealName), seal, 0o400); err != nil {
		return err
	}
	lock, err := c.changing()
	if err != nil {
		return err
	}
	defer lock.Close()
	err = os.Rename(temp, dir)
	if errors.Is(err, fs.ErrExist) || err != nil && strings.Contains(err.Error(), "not empty") {
		// Another run was faster.
		return nil
	}
	return errors.Join(err, c.shrink(lock))
}

const (
	lockName = "lock"
	// markEvery is the precision of the last use of an entry.
	markEvery = time.Minute
	// leftAfter is the age at which an unfinished entry counts as left by a killed daemon.
	leftAfter = time.Hour
	// leastEntry is the least size that an entry counts as, in bytes, since it also uses inodes and
	// time.
	leastEntry = 1 << 20
)

// defaultCache is the default bound on the compiled modules, in bytes.
const defaultCache = 4 << 30

// Commands of fcntl(2) that package syscall does not name.
const (
	setLock     = 37 // F_OFD_SETLK
	setLockWait = 38 // F_OFD_SETLKW
)

// A Hold keeps the entries that Find returned with it from removal until it is closed. It is not
// safe for concurrent use.
type Hold struct{ lock *os.File }

// Close releases the entries. h may be nil.
func (h *Hold) Close() {
	if h != nil && h.lock != nil {
		h.lock.Close()
		h.lock = nil
	}
}

func (h *Hold) keep(c *Cache, dir string) error {
	at, err := lockOf(filepath.Base(dir))
	if err == nil && h.lock == nil {
		h.lock, err = c.openLock()
	}
	if err != nil {
		return err
	}
	return lockByte(h.lock, setLockWait, syscall.F_RDLCK, at)
}

func (c *Cache) openLock() (*os.File, error) {
	return os.OpenFile(filepath.Join(c.dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
}

// changing waits for the exclusive lock for adding and removing entries. Closing the file releases
// it.
func (c *Cache) changing() (*os.File, error) {
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

// lockOf returns the offset of the lock byte for an entry. Entries that share a byte count as used
// together.
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

// mark records the use of an entry in the time of its directory.
func (c *Cache) mark(dir string) error {
	info, err := os.Stat(dir)
	if err != nil || time.Since(info.ModTime()) < markEvery {
		return err
	}
	now := time.Now()
	return os.Chtimes(dir, now, now)
}

// An entryRoom is the disk usage and last use of an entry.
type entryRoom struct {
	path string
	used time.Time
	size int64
}

// shrink removes the least recently used entries until the rest fits, and leftovers of killed
// daemons. lock is the file from changing.
func (c *Cache) shrink(lock *os.File) error {
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

// free removes an entry unless a run uses it.
func (c *Cache) free(lock *os.File, dir string) (gone bool, err error) {
	at, err := lockOf(filepath.Base(dir))
	if err != nil {
		// Not an entry of the cache.
		return false, nil
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

// room returns the disk usage of the entries, also of those that are being written.
func (c *Cache) room() (all []entryRoom, total int64, err error) {
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
			// It was renamed or removed meanwhile.
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		e.size = max(e.size, leastEntry)
		all, total = append(all, e), total+e.size
	}
	return all, total, nil
}
