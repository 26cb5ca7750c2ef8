// Package modules keeps what the daemon knows of WebAssembly modules and programs: the compiled
// forms of modules on disk, the verified bytes of installed modules in memory, and the digests of
// programs.
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

// A Cache keeps the compiled forms of modules: machine code that a jail of its own makes from a
// module that nobody trusts, and that other jails run later. An entry therefore serves only runs of
// the very module that it was made from, is stored where only root writes, and carries a seal that
// is checked at each use.
//
//	<dir>/secret            the key of the seals
//	<dir>/<key>/wazero-…/…  one entry, mounted read-only into the jail
//	<dir>/<key>/seal        over the entry's content, and, once that is settled, over its place, size and times
//	<dir>/lock              byte 0 is held while entries are removed or put in place;
//	                        one other byte for each entry, shared by the runs that use it
//
// The cache stays below a bound: Store removes the entries that were used longest ago. An entry is
// mounted into jails, which read it whenever they first need it, so an entry that a run uses stays
// until that run is over. Runs of other daemons count as well: after an upgrade two daemons share
// one cache for a while. The kernel keeps the locks and drops them with the process. They are on a
// file of their own, because a file that is mounted into a jail can be locked from inside.
//
// The time of an entry's directory says when the entry was last used. The time of its file does
// not: the seal covers that one.
type Cache struct {
	dir    string
	secret []byte
	// machine is what the engine's machine code depends on besides the module.
	machine string
	// settles is how old a change of an entry must be for its times to count.
	settles time.Duration
	// most is how many bytes the entries take.
	most int64
}

// Open opens the cache in a directory, of at most so many bytes; 0 means defaultCache.
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
	// Missing or cut short: a new secret makes every entry worthless, and each is made anew when it
	// is needed.
	if err == nil {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	c.secret = make([]byte, sha256.Size)
	rand.Read(c.secret)
	// Another daemon may have been faster: its secret counts.
	if err := atomicfile.Create(path, c.secret, 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	c.secret, err = os.ReadFile(path)
	return c, err
}

// describeMachine names the processor's features, as the kernel lists them.
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

// Path returns the directory of a module's compiled form, which need not exist.
func (c *Cache) Path(module [sha256.Size]byte) string {
	return filepath.Join(c.dir, wasi.CacheKey(module, c.machine))
}

const (
	sealName = "seal"
	// What is being written begins with it.
	unplaced = "new-"
)

// Find returns the directory of the module's compiled form, which stays there while hold is open.
// An entry that does not match its seal is removed and counts as missing.
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

// isUseless reports whether an entry is to be made anew.
func isUseless(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, wasi.ErrSeal)
}

// remove takes a useless entry away, unless another run has put a new one in its place by now.
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

// check accepts an entry whose file is the one that was sealed and has not been written since: to
// forge that stamp one has to read the secret. It reads every other entry again, in a copy of the
// state directory for one.
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

// stamp seals where a file is and when it was last changed. A stamp that is not settled proves
// nothing: before Linux 6.13 the kernel's file times advance in ticks, so two changes in one tick
// leave the same times.
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

// entryName is what the engine calls an entry; anything else is refused, since the name comes from
// inside.
var entryName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^wazero-[A-Za-z0-9._-]{1,80}/[0-9a-f]{64}$`)
})

// MaxEntry bounds a compiled module, in bytes.
const MaxEntry = 512 << 20

// Store stores what a compiling jail wrote: a line with the entry's name, then its bytes. It
// removes entries until the cache fits its bound, and this one may be among them if nobody holds
// it.
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
	// What was written a moment ago has no stamp yet: check adds it.
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
	// markEvery is how exactly the last use of an entry is known.
	markEvery = time.Minute
	// leftAfter is how old an unfinished entry must be to have been left by a daemon that was
	// killed.
	leftAfter = time.Hour
	// leastEntry is what an entry counts as at least, in bytes: an entry has inodes, too, and there
	// is a bound to how many entries are looked at.
	leastEntry = 1 << 20
)

// defaultCache is how many bytes compiled modules take unless the settings say otherwise.
const defaultCache = 4 << 30

// Commands of fcntl(2), which package syscall has no names for.
const (
	setLock     = 37 // F_OFD_SETLK
	setLockWait = 38 // F_OFD_SETLKW
)

// A Hold keeps the entries in place that were looked for with it, until it is closed. It is not
// safe for concurrent use.
type Hold struct{ lock *os.File }

// Close lets the entries go.
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

// changing waits until nobody else adds or removes entries. The caller closes the file.
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

// lockOf returns the byte of the lock that stands for an entry. Two entries may share a byte: then
// both are in use when one is.
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

// mark records that an entry is used now.
func (c *Cache) mark(dir string) error {
	info, err := os.Stat(dir)
	if err != nil || time.Since(info.ModTime()) < markEvery {
		return err
	}
	now := time.Now()
	return os.Chtimes(dir, now, now)
}

// An entryRoom is how much disk an entry takes.
type entryRoom struct {
	path string
	used time.Time
	size int64
}

// shrink removes the entries that were used longest ago until the others fit, and what killed
// daemons have left. lock is what changing returned.
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
		// This file is no entry of the cache.
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

// room returns how much disk the entries take, including those that are being written.
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
			// Put in its place, or given up, in this moment.
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
