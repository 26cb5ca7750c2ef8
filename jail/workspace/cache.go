package workspace

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// A cache is a file system of a bounded size that outlives the runs which use it,
// <store>/.cache-<id>/ with
//
//	upper.img   its ext4 image; its lock is held by the loop device while a mount of it lives
//	meta.json   whose it is; it is written last, so that an image without it is an unfinished one
//	lock        held while the cache is opened, made or removed; its mtime is the last use
//
// All jails that use a cache at one time mount one loop device, so that the kernel has one file
// system and no two views of one image. Nothing here reads what is in the file system, which is the
// work of hostile tools: a cache is mounted into jails, or removed as one file.
const cachePrefix = ".cache-"

// CacheRoot is the only directory of a cache's file system that a jail sees. The others belong to
// jail; see furnish.
const CacheRoot = "upper"

const (
	// bytesPerFile: a cache may have one file for so many bytes of its limit.
	bytesPerFile = 16 << 10
	// minCacheFiles and maxCacheFiles bound the number of files of a cache.
	minCacheFiles, maxCacheFiles = 1024, 1 << 20
)

// ErrCacheInUse means that a jail or a session has the cache mounted.
var ErrCacheInUse = errors.New("the cache is in use")

// A CacheOwner says for whom and for what a cache was made. The store does not check it.
type CacheOwner struct {
	Name    string `json:"name"`
	UID     uint32 `json:"uid"`     // of the caller
	Profile string `json:"profile"` // the name of the policy
	Policy  string `json:"policy"`  // digest of what the policy grants
}

// A CacheSpec says which cache to open, and how to make it if there is none.
type CacheSpec struct {
	// ID has lower-case letters and digits only.
	ID    string
	Owner CacheOwner
	// Size is the limit of the cache in bytes.
	Size int64
	// UID and GID own the directory CacheRoot of the cache.
	UID, GID uint32
}

type cacheMeta struct {
	CacheOwner
	Size    int64     `json:"size"`
	Created time.Time `json:"created"`
	// Boot is the id of the boot in which the image was last written to, or "" once all of it is on
	// the disk. In another boot the image is not used, since writes may have been lost.
	Boot string `json:"boot,omitempty"`
}

// A CacheInfo describes a cache.
type CacheInfo struct {
	ID string `json:"id"`
	CacheOwner
	Size    int64     `json:"size"` // limit, in bytes
	Disk    int64     `json:"disk"` // bytes that the image takes on the disk
	Created time.Time `json:"created"`
	Used    time.Time `json:"used"` // when it was opened last
	InUse   bool      `json:"in_use"`

	// unsettled: a part of the image may not be on the disk yet.
	unsettled bool
}

func cacheFiles(size int64) int64 {
	return min(max(size/bytesPerFile, minCacheFiles), maxCacheFiles)
}

// Caches opens, lists and removes the caches of a store. Several processes may do so at once.
type Caches struct{ store *Store }

// Caches returns the Caches of the store.
func (s *Store) Caches() Caches { return Caches{s} }

// Open returns a detached mount of a cache's file system, of which the jail gets the directory
// [CacheRoot]. It makes the cache if there is none. fresh: the cache is empty, because it is new or
// because the host went down while it was mounted. The caller closes the mount. The error is
// ErrNoSpace if the disk has no room for the cache beside all layers that are being written. After
// an error no unfinished cache is left.
func (c Caches) Open(spec CacheSpec) (mount *os.File, fresh bool, err error) {
	if checkID(spec.ID) != nil {
		err = fmt.Errorf("%q is no id", spec.ID)
	} else {
		mount, fresh, err = c.openLocked(spec)
	}
	if err != nil {
		return nil, false, fmt.Errorf("cache %s: %w", spec.Owner.Name, err)
	}
	if fresh {
		// Only a new cache can exceed maxCaches. If this fails, the next new cache prunes again.
		_ = c.Prune(time.Now(), &spec.Owner.UID)
	}
	return mount, fresh, nil
}

// openLocked locks the cache and calls open. It retries while the kernel still uses the image.
func (c Caches) openLocked(spec CacheSpec) (mount *os.File, fresh bool, err error) {
	dir, unlock, err := c.lock(spec.ID, true)
	if err != nil {
		return nil, false, err
	}
	defer unlock()
	err = retry(context.Background(), ErrCacheInUse, func() (err error) {
		mount, fresh, err = c.open(dir, spec)
		if errors.Is(err, ErrCacheInUse) {
			err = errRetry
		}
		return err
	})
	if err != nil {
		// A cache without meta.json is in no list, so it is removed now.
		return nil, false, errors.Join(err, c.removeUnfinished(dir, spec.ID))
	}
	return mount, fresh, nil
}

// lock opens the directory of a cache and waits for its lock. create makes a missing directory.
func (c Caches) lock(id string, create bool) (dir *os.File, unlock func(), err error) {
	for {
		if create {
			err = sys.MkdirAt(c.store.dir, cachePrefix+id, 0o700)
			if err != nil && !errors.Is(err, fs.ErrExist) {
				return nil, nil, err
			}
		}
		dir, unlock, err = c.lockBy(id, waitLock)
		if !errors.Is(err, fs.ErrNotExist) || !create {
			return dir, unlock, err
		}
	}
}

// lockBy opens the directory of a cache and calls take with its lock file. unlock closes both. The
// error is fs.ErrNotExist if the cache was removed meanwhile.
func (c Caches) lockBy(id string, take func(*os.File) error) (dir *os.File, unlock func(),
	err error) {
	if dir, err = sys.OpenSubdir(c.store.dir, cachePrefix+id); err != nil {
		return nil, nil, err
	}
	lock, err := lockFile(dir, "lock", take)
	if err == nil {
		// The process that had the lock may have removed the cache.
		if same, sameErr := isNamed(dir, "lock", lock); sameErr == nil && same {
			return dir, func() { closeAll(lock, dir) }, nil
		}
		err = fs.ErrNotExist
	}
	closeAll(lock, dir)
	return nil, nil, err
}

// isNamed reports whether name in dir is the same inode as file.
func isNamed(dir *os.File, name string, file *os.File) (bool, error) {
	at, err := sys.LstatAt(dir, name)
	if err != nil {
		return false, err
	}
	st, err := sys.Fstat(file)
	return err == nil && st.Dev == at.Dev && st.Ino == at.Ino, err
}

// open opens a cache whose lock is held. The error is ErrCacheInUse if another process or the
// kernel has not released the image yet.
func (c Caches) open(dir *os.File, spec CacheSpec) (mount *os.File, fresh bool, err error) {
	image, err := sys.OpenBeneath(dir, "upper.img", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, false, err
	}
	defer image.Close()
	bytes, files := spec.Size&^4095, cacheFiles(spec.Size)
	name := cachePrefix + spec.ID
	if err := sys.Lock(image, true); errors.Is(err, syscall.EWOULDBLOCK) {
		mount, err := mountAgain(image)
		return mount, false, errors.Join(err, touch(dir, mount))
	} else if err != nil {
		return nil, false, err
	}
	st, err := sys.Fstat(image)
	if err != nil {
		return nil, false, err
	}
	most := imageSize(bytes, files)
	// A reservation of an earlier use would count as one of another layer.
	if err := c.store.unreserve(name); err != nil {
		return nil, false, err
	}
	unlock, err := c.store.reserve(name, most, spec.Size, st.Blocks*512)
	if err != nil {
		return nil, false, err
	}
	unlock()
	defer func() {
		if err != nil {
			err = errors.Join(err, c.store.unreserve(name))
		}
	}()
	if fresh, err = c.ready(dir, image, spec, most); err != nil {
		return nil, false, err
	}
	loop, mount, err := mountLoop(image, false)
	if err != nil {
		return nil, false, err
	}
	// The mount keeps the loop device.
	defer loop.Close()
	if err := errors.Join(own(mount, spec), touch(dir, mount)); err != nil {
		mount.Close()
		return nil, false, err
	}
	return mount, fresh, nil
}

// ready makes the image a new file system unless isWhole, and saves this boot's id in meta.json.
// fresh: the file system is new.
func (c Caches) ready(dir, image *os.File, spec CacheSpec, most int64) (fresh bool, err error) {
	boot, err := sys.BootID()
	if err != nil {
		return false, err
	}
	meta, err := readJSON[cacheMeta](dir, "meta.json")
	if err != nil || !meta.isWhole(image, spec, most, boot) {
		if err := c.format(dir, image, spec); err != nil {
			return false, err
		}
		fresh, meta = true, &cacheMeta{spec.Owner, spec.Size, time.Now().UTC(), ""}
	}
	if meta.Boot != boot {
		meta.Boot = boot
		err = folder{dir}.writeJSON("meta.json", meta, true)
	} else {
		err = nil
	}
	return fresh, err
}

// format makes the image an empty file system. It first removes meta.json from the disk, so that an
// interrupted format leaves an unfinished cache.
func (c Caches) format(dir, image *os.File, spec CacheSpec) error {
	bytes, files := spec.Size&^4095, cacheFiles(spec.Size)
	template, err := c.store.template(bytes, files)
	if err != nil {
		return err
	}
	defer template.Close()
	if err := errors.Join(removeAt(dir, "meta.json"), dir.Sync()); err != nil {
		return err
	}
	return copyTemplate(image, template, imageSize(bytes, files))
}

// isWhole reports whether the image has the size of the spec and is complete on the disk. ext4
// without a journal marks itself as not clean while it is mounted for writing.
func (m *cacheMeta) isWhole(image *os.File, spec CacheSpec, most int64, boot string) bool {
	const (
		magicAt, magic = 1024 + 0x38, 0xef53
		stateAt        = 1024 + 0x3a
		// clean is the state of a file system without a known error.
		clean = 1
	)
	if m.Size != spec.Size || m.Boot != "" && m.Boot != boot {
		return false
	}
	st, err := sys.Fstat(image)
	if err != nil || st.Size != most {
		return false
	}
	var head [4]byte
	if _, err := image.ReadAt(head[:], magicAt); err != nil {
		return false
	}
	return binary.LittleEndian.Uint16(head[:2]) == magic &&
		binary.LittleEndian.Uint16(head[stateAt-magicAt:]) == clean
}

// Settle syncs the caches that are not in use to the disk, so that they survive a power loss.
func (c Caches) Settle() error {
	all, err := c.List()
	for _, info := range all {
		if !info.InUse && info.unsettled {
			err = errors.Join(err, c.settle(info.ID))
		}
	}
	return err
}

// settle syncs a cache to the disk and records that. It does nothing if the cache is being made,
// mounted or removed.
func (c Caches) settle(id string) error {
	image, err := sys.OpenBeneath(c.store.dir, path.Join(cachePrefix+id, "upper.img"), os.O_RDWR, 0)
	if err == nil {
		defer image.Close()
		// Most of the image is synced without the lock, for which a run would wait.
		err = image.Sync()
	}
	if err == nil {
		err = c.clearBoot(id)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EWOULDBLOCK) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cache %s: %w", id, err)
	}
	return nil
}

// clearBoot syncs an image and clears Boot in meta.json. Both locks show that nothing can write to
// the image meanwhile. It does nothing for an image that was written to in an earlier boot.
func (c Caches) clearBoot(id string) error {
	dir, unlock, err := c.lockBy(id, tryLock)
	if err != nil {
		return err
	}
	defer unlock()
	image, err := sys.OpenBeneath(dir, "upper.img", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer image.Close()
	if err := sys.Lock(image, true); err != nil {
		return err
	}
	meta, err := readJSON[cacheMeta](dir, "meta.json")
	if err != nil || meta.Boot == "" {
		return err
	}
	boot, err := sys.BootID()
	if err != nil || meta.Boot != boot {
		return err
	}
	if err := image.Sync(); err != nil {
		return err
	}
	meta.Boot = ""
	return folder{dir}.writeJSON("meta.json", meta, true)
}

func tryLock(f *os.File) error { return sys.Lock(f, true) }

// own sets the owner and mode of the directory CacheRoot.
func own(mount *os.File, spec CacheSpec) error {
	f, err := sys.OpenSubdirPath(mount, CacheRoot)
	if err != nil {
		return err
	}
	return errors.Join(sys.Chown(f, spec.UID, spec.GID), sys.Chmod(f, 0o700), f.Close())
}

// touch sets the time of the cache's last use to now, by a write to its lock file. It does nothing
// if mount is nil.
func touch(dir, mount *os.File) error {
	if mount == nil {
		return nil
	}
	lock, err := sys.OpenBeneath(dir, "lock", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = lock.WriteAt([]byte{'\n'}, 0)
	return errors.Join(err, lock.Close())
}

// mountAgain mounts the file system of an image once more, by the loop device that has it. The
// error is ErrCacheInUse if there is none.
func mountAgain(image *os.File) (*os.File, error) {
	loop, err := sys.LoopOf(image)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrCacheInUse
	}
	if err != nil {
		return nil, err
	}
	defer loop.Close()
	return sys.MountExt4(loop, false)
}

// List describes all caches, the last used first. With an error it returns those that can be read.
func (c Caches) List() (all []CacheInfo, err error) {
	ids, err := c.ids()
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		info, infoErr := c.info(id)
		if errors.Is(infoErr, fs.ErrNotExist) {
			// It is being made or removed.
			continue
		}
		if err = errors.Join(err, infoErr); infoErr == nil {
			all = append(all, info)
		}
	}
	slices.SortFunc(all, func(a, b CacheInfo) int {
		return cmp.Or(b.Used.Compare(a.Used), strings.Compare(a.ID, b.ID))
	})
	return all, err
}

// ids returns the ids of all caches, also of unfinished ones.
func (c Caches) ids() (all []string, err error) {
	names, err := c.store.names()
	for _, name := range names {
		if id, ok := strings.CutPrefix(name, cachePrefix); ok && checkID(id) == nil {
			all = append(all, id)
		}
	}
	return all, err
}

func (c Caches) info(id string) (info CacheInfo, err error) {
	dir, err := sys.OpenSubdir(c.store.dir, cachePrefix+id)
	if err != nil {
		return info, err
	}
	defer dir.Close()
	meta, err := readJSON[cacheMeta](dir, "meta.json")
	if err != nil {
		return info, fmt.Errorf("cache %s: %w", id, err)
	}
	image, err := sys.LstatAt(dir, "upper.img")
	if err != nil {
		return info, err
	}
	info = CacheInfo{ID: id, CacheOwner: meta.CacheOwner, Size: meta.Size,
		Disk: image.Blocks * 512, Created: meta.Created, unsettled: meta.Boot != ""}
	if info.InUse, err = (folder{dir}).live(); err != nil {
		return info, err
	}
	lock, err := sys.LstatAt(dir, "lock")
	if err == nil {
		info.Used = time.Unix(lock.Mtime.Sec, lock.Mtime.Nsec).UTC()
	}
	return info, err
}

// Remove removes a cache. The error is ErrNotFound if there is none, and ErrCacheInUse while
// anything has it mounted.
func (c Caches) Remove(id string) error {
	if checkID(id) != nil {
		return fmt.Errorf("cache %q: %w", id, ErrNotFound)
	}
	dir, unlock, err := c.lock(id, false)
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNotFound
	}
	if err == nil {
		err = c.remove(dir, id)
		unlock()
	}
	if err != nil {
		return fmt.Errorf("cache %s: %w", id, err)
	}
	return nil
}

// remove removes a cache whose lock is held, unless it is in use.
func (c Caches) remove(dir *os.File, id string) error {
	live, err := (folder{dir}).live()
	if err == nil && live {
		err = ErrCacheInUse
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil {
		// meta.json goes first: without it, the next Open makes the cache anew.
		err = errors.Join(removeAt(dir, "meta.json"), removeAt(dir, "upper.img"))
	}
	if err == nil {
		err = errors.Join(removeAt(dir, "lock"), c.store.unreserve(cachePrefix+id))
	}
	if err == nil {
		err = sys.RmdirAt(c.store.dir, cachePrefix+id)
	}
	if errors.Is(err, syscall.ENOTEMPTY) {
		// A process that waited for the lock makes the cache again.
		err = nil
	}
	return err
}

// removeUnfinished removes a cache whose lock is held, if it has no meta.json.
func (c Caches) removeUnfinished(dir *os.File, id string) error {
	_, err := sys.LstatAt(dir, "meta.json")
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err = c.remove(dir, id); errors.Is(err, ErrCacheInUse) {
		err = nil
	}
	return err
}

// pruneUnfinished removes the caches without meta.json that no process is making.
func (c Caches) pruneUnfinished() error {
	ids, err := c.ids()
	for _, id := range ids {
		dir, unlock, lockErr := c.lockBy(id, tryLock)
		switch {
		case lockErr == nil:
			err = errors.Join(err, c.removeUnfinished(dir, id))
			unlock()
		case !errors.Is(lockErr, fs.ErrNotExist) && !errors.Is(lockErr, syscall.EWOULDBLOCK):
			err = errors.Join(err, lockErr)
		}
	}
	return err
}

const (
	// cacheAge is how long an unused cache is kept.
	cacheAge = 30 * 24 * time.Hour
	// maxCaches bounds the caches of a user. With one more, the least recently used is removed.
	maxCaches = 64
)

// Prune removes caches that were not used for cacheAge, each user's least recently used beyond
// maxCaches, and unfinished caches of killed processes. It keeps those in use. If uid is not nil,
// it looks only at that user's caches.
func (c Caches) Prune(now time.Time, uid *uint32) error {
	err := c.pruneUnfinished()
	all, listErr := c.List()
	err = errors.Join(err, listErr)
	count := map[uint32]int{}
	for _, info := range all {
		if uid != nil && info.UID != *uid {
			continue
		}
		count[info.UID]++
		if info.InUse || count[info.UID] <= maxCaches && now.Sub(info.Used) < cacheAge {
			continue
		}
		if removeErr := c.Remove(info.ID); !errors.Is(removeErr, ErrCacheInUse) &&
			!errors.Is(removeErr, ErrNotFound) {
			err = errors.Join(err, removeErr)
		}
	}
	return err
}

// CacheRoom returns how many bytes and files can still be written to a cache. mount is from
// [Caches.Open].
func CacheRoom(mount *os.File) (bytes, files int64, err error) {
	bytes, files, err = sys.Room(mount)
	return max(0, bytes-blockSize), files, err
}
