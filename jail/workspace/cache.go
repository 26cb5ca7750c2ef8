package workspace

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
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

// CacheRoot is the directory of the file system that a jail sees. The others hold what uses up room
// beyond the limit; see furnish.
const CacheRoot = "upper"

const (
	// bytesPerFile is how many bytes of the limit of a cache give it one file.
	bytesPerFile = 16 << 10
	// minCacheFiles and maxCacheFiles bound the number of its files.
	minCacheFiles, maxCacheFiles = 1024, 1 << 20
	// cachePatience bounds the wait for a loop device that is being released.
	cachePatience = 10 * time.Second
	// cachePoll is how often it is tried again.
	cachePoll = 5 * time.Millisecond
)

// ErrCacheInUse means that a jail or a session has the cache mounted.
var ErrCacheInUse = errors.New("the cache is in use")

// A CacheOwner says what a cache was made for. The store keeps it and asks nothing of it.
type CacheOwner struct {
	Name    string `json:"name"`
	UID     uint32 `json:"uid"`     // of the caller
	Profile string `json:"profile"` // the name of the policy
	Policy  string `json:"policy"`  // digest of what the policy grants
}

// A CacheSpec says which cache is opened, and how it is made where there is none.
type CacheSpec struct {
	// ID is of lower-case letters and digits.
	ID    string
	Owner CacheOwner
	// Size bounds what is written to it, in bytes.
	Size int64
	// UID and GID own its directory.
	UID, GID uint32
}

type cacheMeta struct {
	CacheOwner
	Size    int64     `json:"size"`
	Created time.Time `json:"created"`
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
}

func cacheFiles(size int64) int64 {
	return min(max(size/bytesPerFile, minCacheFiles), maxCacheFiles)
}

// OpenCache returns a detached mount of the file system of a cache, whose directory [CacheRoot] is
// for the jail, and makes the cache if there is none. fresh says that it is empty: it is new, or
// the host went down while it was mounted, so that what is on the disk cannot be relied on. The
// caller closes the mount. The error is ErrNoSpace if the disk has no room for it beside all layers
// that are being written.
func (s *Store) OpenCache(spec CacheSpec) (mount *os.File, fresh bool, err error) {
	fail := func(err error) (*os.File, bool, error) {
		return nil, false, fmt.Errorf("cache %s: %w", spec.Owner.Name, err)
	}
	if checkID(spec.ID) != nil {
		return fail(fmt.Errorf("%q is no id", spec.ID))
	}
	mount, fresh, err = s.lockedCache(spec)
	if err != nil {
		return fail(err)
	}
	if fresh {
		// Only a new one can be one too many, and what stays is pruned by the next.
		_ = s.PruneCaches(time.Now(), &spec.Owner.UID)
	}
	return mount, fresh, nil
}

// lockedCache is openCache with the lock of the cache.
func (s *Store) lockedCache(spec CacheSpec) (mount *os.File, fresh bool, err error) {
	dir, unlock, err := s.lockCache(spec.ID, true)
	if err != nil {
		return nil, false, err
	}
	defer dir.Close()
	defer unlock()
	for begun := time.Now(); ; time.Sleep(cachePoll) {
		mount, fresh, err = s.openCache(dir, spec)
		if !errors.Is(err, ErrCacheInUse) || time.Since(begun) > cachePatience {
			return mount, fresh, err
		}
	}
}

// lockCache opens the directory of a cache, makes it if that is wanted, and takes its lock.
func (s *Store) lockCache(id string, create bool) (dir *os.File, unlock func(), err error) {
	for {
		if create {
			err = sys.MkdirAt(s.dir, cachePrefix+id, 0o700)
			if err != nil && !errors.Is(err, fs.ErrExist) {
				return nil, nil, err
			}
		}
		if dir, err = sys.OpenSubdir(s.dir, cachePrefix+id); err != nil {
			return nil, nil, err
		}
		lock, err := sys.OpenBeneath(dir, "lock", os.O_RDWR|os.O_CREATE, 0o600)
		if err == nil {
			if err = sys.LockWait(lock, true); err == nil {
				// Whoever had the lock may have removed the cache.
				if same, sameErr := isNamed(dir, "lock", lock); sameErr == nil && same {
					return dir, func() { lock.Close() }, nil
				}
				err = fs.ErrNotExist
			}
			lock.Close()
		}
		dir.Close()
		if !errors.Is(err, fs.ErrNotExist) || !create {
			return nil, nil, err
		}
	}
}

// isNamed reports whether name in dir is the open file.
func isNamed(dir *os.File, name string, file *os.File) (bool, error) {
	at, err := sys.LstatAt(dir, name)
	if err != nil {
		return false, err
	}
	st, err := sys.Fstat(file)
	return err == nil && st.Dev == at.Dev && st.Ino == at.Ino, err
}

// openCache opens a cache whose lock is held. The error is ErrCacheInUse where another process, or
// the kernel, has not let go of the image yet.
func (s *Store) openCache(dir *os.File, spec CacheSpec) (mount *os.File, fresh bool, err error) {
	image, err := sys.OpenBeneath(dir, "upper.img", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, false, err
	}
	defer image.Close()
	bytes, files := spec.Size&^4095, cacheFiles(spec.Size)
	name := cachePrefix + spec.ID
	if err := sys.Lock(image, true); errors.Is(err, syscall.EWOULDBLOCK) {
		mount, err := mountAgain(image)
		return mount, false, errors.Join(err, s.touch(dir, mount))
	} else if err != nil {
		return nil, false, err
	}
	st, err := sys.Fstat(image)
	if err != nil {
		return nil, false, err
	}
	most := imageSize(bytes, files)
	// The reservation of the last use, if there is one, would count as that of another layer.
	if err := s.unreserve(name); err != nil {
		return nil, false, err
	}
	unlock, err := s.reserveMore(name, most, spec.Size, st.Blocks*512)
	if err != nil {
		return nil, false, err
	}
	defer unlock()
	loop, err := s.readyLoop(dir, image, spec, most, &fresh)
	if err != nil {
		return nil, false, errors.Join(err, s.unreserve(name))
	}
	// The mount keeps it.
	defer loop.Close()
	if mount, err = sys.MountExt4(loop, false); err != nil {
		return nil, false, errors.Join(err, s.unreserve(name))
	}
	if err = errors.Join(own(mount, spec), s.touch(dir, mount)); err != nil {
		mount.Close()
		return nil, false, err
	}
	return mount, fresh, nil
}

// readyLoop returns a loop device of the image, which is made anew unless it is whole.
func (s *Store) readyLoop(dir, image *os.File, spec CacheSpec, most int64,
	fresh *bool) (*os.File, error) {
	if !isWhole(dir, image, spec, most) {
		*fresh = true
		if err := removeAt(dir, "meta.json"); err != nil {
			return nil, err
		}
		if err := s.format(image, spec.Size&^4095, cacheFiles(spec.Size)); err != nil {
			return nil, err
		}
		meta := cacheMeta{spec.Owner, spec.Size, time.Now().UTC()}
		if err := (folder{dir}).writeJSON("meta.json", meta, true); err != nil {
			return nil, err
		}
	}
	return sys.AttachLoop(image, false)
}

// isWhole reports whether the image is that of the spec and was unmounted after its last use. ext4
// without a journal marks itself as not clean while it is mounted for writing.
func isWhole(dir, image *os.File, spec CacheSpec, most int64) bool {
	const (
		magicAt, magic = 1024 + 0x38, 0xef53
		stateAt        = 1024 + 0x3a
		clean          = 1 // and no error was found
	)
	meta, err := readJSON[cacheMeta](dir, "meta.json")
	if err != nil || meta.Size != spec.Size {
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

// own gives the directory of the jail to its owner.
func own(mount *os.File, spec CacheSpec) error {
	f, err := sys.OpenSubdirPath(mount, CacheRoot)
	if err != nil {
		return err
	}
	return errors.Join(sys.Chown(f, spec.UID, spec.GID), sys.Chmod(f, 0o700), f.Close())
}

// touch notes that the cache is used now. mount is nil where it could not be mounted.
func (s *Store) touch(dir, mount *os.File) error {
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

// mountAgain mounts the file system of an image whose lock is held: that of the loop device which
// holds it.
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

// reserveMore is reserve for an image of which a part is on the disk already.
func (s *Store) reserveMore(id string, most, limit, has int64) (unlock func(), err error) {
	dir, unlock, err := s.lockLive()
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if err := s.promise(dir, id, most, limit, has); err != nil {
		unlock()
		return nil, errors.Join(err, s.unreserve(id))
	}
	return unlock, nil
}

// Caches describes all caches, those used last first. It also returns those that can be read beside
// an error.
func (s *Store) Caches() (all []CacheInfo, err error) {
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		id, ok := strings.CutPrefix(name, cachePrefix)
		if !ok || checkID(id) != nil {
			continue
		}
		info, infoErr := s.cacheInfo(id)
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

func (s *Store) cacheInfo(id string) (info CacheInfo, err error) {
	dir, err := sys.OpenSubdir(s.dir, cachePrefix+id)
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
		Disk: image.Blocks * 512, Created: meta.Created}
	if info.InUse, err = (folder{dir}).live(); err != nil {
		return info, err
	}
	lock, err := sys.LstatAt(dir, "lock")
	if err == nil {
		info.Used = time.Unix(lock.Mtime.Sec, lock.Mtime.Nsec).UTC()
	}
	return info, err
}

// RemoveCache removes a cache. The error is ErrNotFound if there is none, and ErrCacheInUse while
// anything has it mounted.
func (s *Store) RemoveCache(id string) error {
	if checkID(id) != nil {
		return fmt.Errorf("cache %q: %w", id, ErrNotFound)
	}
	dir, unlock, err := s.lockCache(id, false)
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("cache %s: %w", id, err)
	}
	defer dir.Close()
	defer unlock()
	live, err := (folder{dir}).live()
	if err == nil && live {
		err = ErrCacheInUse
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil {
		// Without its meta it is empty for the next one, whatever happens next.
		err = errors.Join(removeAt(dir, "meta.json"), removeAt(dir, "upper.img"))
	}
	if err == nil {
		err = errors.Join(removeAt(dir, "lock"), s.unreserve(cachePrefix+id))
	}
	if err == nil {
		err = sys.RmdirAt(s.dir, cachePrefix+id)
	}
	if err != nil {
		return fmt.Errorf("cache %s: %w", id, err)
	}
	return nil
}

const (
	// CacheAge is how long a cache is kept that nobody uses.
	CacheAge = 30 * 24 * time.Hour
	// MaxCaches is how many caches a user has. With one more, that which was used longest ago goes.
	MaxCaches = 64
)

// PruneCaches removes caches that were not used for CacheAge, and of each user the oldest above
// MaxCaches. It leaves those in use. uid bounds it to the caches of one user, nil to none.
func (s *Store) PruneCaches(now time.Time, uid *uint32) error {
	all, err := s.Caches()
	count := map[uint32]int{}
	for _, c := range all {
		if uid != nil && c.UID != *uid {
			continue
		}
		count[c.UID]++
		if c.InUse || count[c.UID] <= MaxCaches && now.Sub(c.Used) < CacheAge {
			continue
		}
		if removeErr := s.RemoveCache(c.ID); !errors.Is(removeErr, ErrCacheInUse) &&
			!errors.Is(removeErr, ErrNotFound) {
			err = errors.Join(err, removeErr)
		}
	}
	return err
}

// CacheRoom returns the bytes and files that a cache still takes; mount is of OpenCache.
func CacheRoom(mount *os.File) (bytes, files int64, err error) {
	bytes, files, err = sys.Room(mount)
	return max(0, bytes-blockSize), files, err
}
