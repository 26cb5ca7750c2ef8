package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// The kernel takes a tool's writes into memory and writes them to the image later. If the disk is
// full by then, or fails, the tool does not learn of it: the kernel drops the pages. The image has
// a hole there, or an extent marked as unwritten, and reads as zeros. damagedMode marks such an
// image, since a chmod needs no block on a full disk.
const damagedMode = 0o400

// DamageError means that some of a tool's writes to its layer did not reach the disk.
type DamageError struct {
	// Store is the directory of the store.
	Store Name
	// Full: the disk is full; otherwise it failed.
	Full bool
	// Damaged are the damaged paths of the layer. Everything below a damaged directory is damaged.
	Damaged []Name
	// Err is the kernel's error.
	Err error
}

func (e *DamageError) Error() string {
	why := fmt.Sprintf("the disk of the state directory %s failed", e.Store)
	if e.Full {
		why = fmt.Sprintf("no space on the host: the disk of the state directory %s is full",
			e.Store)
	}
	text := fmt.Sprintf("%s, so that the last writes to the shadow are lost (%v)", why, e.Err)
	if len(e.Damaged) > 0 {
		text += "; damaged, and left out of the changes: " + listOf(e.Damaged)
	}
	return text
}

func (e *DamageError) Unwrap() error { return e.Err }

// maxListed bounds the names in an error.
const maxListed = 10

func listOf(names []Name) string {
	var list []string
	for _, n := range names[:min(len(names), maxListed)] {
		list = append(list, cmp.Or(n, ".").String())
	}
	if more := len(names) - len(list); more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(list, ", ")
}

// isLost reports whether err means that a file system could not write data that it had accepted.
func isLost(err error) bool {
	return errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ENOSPC) || errors.Is(err,
		syscall.EDQUOT)
}

// Check returns a *DamageError without names if some of the tool's writes did not reach the disk.
// It is called repeatedly while a tool runs. It waits for the disk only if that is possible: the
// disk has less room than the layer may take, or the kernel has counted errors of the file system.
func (w *Workspace) Check() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.layer.root == nil {
		return nil
	}
	suspect, err := w.layer.suspect(w.store.dir)
	if err != nil || !suspect {
		return w.wrap("check", err)
	}
	if err := w.layer.sync(); err != nil {
		return w.wrap("check", w.damage(err))
	}
	return nil
}

// suspect reports whether the disk may have refused a write: it has less room than the layer may
// take, or the kernel has counted errors of the file system.
func (l *layer) suspect(store *os.File) (bool, error) {
	image, err := sys.Fstat(l.image)
	if err != nil {
		return false, err
	}
	free, err := sys.FreeBytes(store)
	if err != nil || free < image.Size-image.Blocks*512 {
		return true, err
	}
	return sys.Ext4Errors(l.loop)
}

// sync writes the layer to the disk. It saves the error in l.lost and returns it again, since the
// kernel reports it once.
func (l *layer) sync() error {
	if l.root == nil || l.lost != nil {
		return l.lost
	}
	if err := sys.Syncfs(l.root); err != nil {
		l.lost = err
	}
	return l.lost
}

// damage returns the DamageError for an error of the kernel, with the damaged paths known so far.
func (w *Workspace) damage(err error) *DamageError {
	e := &DamageError{Store: Name(w.store.dir.Name()), Damaged: w.layer.damagedNames(),
		Err: cause(err)}
	free, freeErr := sys.FreeBytes(w.store.dir)
	e.Full = errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || freeErr == nil &&
		free < fullBelow
	return e
}

// fullBelow is the free space in bytes below which a disk may have refused a write: the loop device
// writes up to so much at once.
const fullBelow = 4 << 20

// cause returns the kernel's error without the operation, which is arbitrary.
func cause(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}

// freezeDamaged freezes a layer that the kernel could not write completely. It unmounts the file
// system and mounts the content of the disk, read-only. Data that the kernel still held in memory
// is not kept: nothing distinguishes it from lost data.
func (w *Workspace) freezeDamaged(lost error) error {
	l := &w.layer
	l.lost = lost
	if err := l.image.Chmod(damagedMode); err != nil {
		return err
	}
	// These are the tool's entries as the kernel has them in memory.
	taken := l.entries()
	// Errors here only repeat the known one.
	_ = closeFiles(&l.root, &l.mount, &l.loop, &l.image)
	w.meta.State = Frozen
	if err := (opening{w}).mountWhenFree(); err != nil {
		return errors.Join(w.damage(lost), err)
	}
	l.compareWith(taken)
	w.meta.Damaged = l.damagedNames()
	if w.save(false) != nil {
		// A full disk takes no new file, so space is freed. If that fails, too, the old meta.json
		// still loads as Frozen once the image is unlocked.
		w.store.dropTemplates(0)
		_ = w.save(false)
	}
	return errors.Join(w.damage(lost), w.store.unreserve(w.meta.ID))
}

// entries returns the stats of the layer's entries, by path. It leaves out unreadable ones.
func (l *layer) entries() map[string]sys.Stat {
	all := map[string]sys.Stat{}
	upper, err := l.openOwn()
	if err != nil {
		return all
	}
	defer upper.Close()
	addEntries(all, upper, "", 0)
	return all
}

func addEntries(all map[string]sys.Stat, dir *os.File, path string, depth int) {
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		st, err := sys.LstatAt(dir, name)
		if err != nil {
			continue
		}
		all[join(path, name)] = st
		if typeOf(st) != Dir || depth >= maxDepth {
			continue
		}
		if sub, err := sys.OpenSubdir(dir, name); err == nil {
			addEntries(all, sub, join(path, name), depth+1)
			sub.Close()
		}
	}
}

// compareWith marks each entry of taken as damaged that differs on the disk. It finds damage that
// leaves no hole: a copy-on-write file system (btrfs) has an earlier state of the entry instead.
func (l *layer) compareWith(taken map[string]sys.Stat) {
	onDisk := l.entries()
	// Directories before what is in them.
	for _, path := range slices.Sorted(maps.Keys(taken)) {
		was := taken[path]
		is, ok := onDisk[path]
		same := ok && typeOf(is) == typeOf(was) && (typeOf(was) == Dir || is.Size == was.Size &&
			is.Mtime == was.Mtime)
		if !same && covering(l.damaged, path) == "" {
			l.damaged[path] = true
		}
	}
}

// mountWhenFree mounts the image after the kernel has released it, shortly after the last
// descriptor is closed.
func (o opening) mountWhenFree() error {
	return retry(context.Background(), ErrActive, func() error {
		err := o.mountAgain()
		if err != nil {
			_ = closeFiles(&o.w.layer.mount, &o.w.layer.loop, &o.w.layer.image)
		}
		if errors.Is(err, ErrActive) {
			return errRetry
		}
		return err
	})
}

// damaged returns the damaged paths of a layer that is open for review, sorted.
func (w *Workspace) damaged() []Name {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.layer.damagedNames()
}

func (l *layer) damagedNames() []Name {
	var names []Name
	for path := range l.damaged {
		names = append(names, Name(path))
	}
	slices.Sort(names)
	return names
}

// lookForDamage sets l.damaged to known and the paths with missing data, if the image is marked as
// damaged. The image must be mounted read-only.
func (l *layer) lookForDamage(known []Name) error {
	st, err := sys.Fstat(l.image)
	if err != nil || st.Perm() != damagedMode {
		return err
	}
	s := &salvage{damaged: map[string]bool{}}
	for _, name := range known {
		s.damaged[string(name)] = true
	}
	err = eachData(l.image, func(start, end int64) error {
		s.data = append(s.data, [2]int64{start, end})
		return nil
	})
	if err != nil {
		return err
	}
	upper, err := l.openOwn()
	if err != nil {
		return fmt.Errorf("nothing of the layer can be read: %w", err)
	}
	defer upper.Close()
	if err := s.dir(upper, "", 0); err != nil {
		return fmt.Errorf("nothing of the layer can be read: %w", err)
	}
	l.damaged = s.damaged
	return nil
}

// salvage finds the damaged paths of a layer.
type salvage struct {
	// data are the ranges of the image that are no holes, in order.
	data    [][2]int64
	damaged map[string]bool
}

var errDamaged = errors.New("damaged")

// dir checks the entries of a directory. An error means that the directory itself is damaged.
func (s *salvage) dir(dir *os.File, path string, depth int) error {
	if depth > maxDepth {
		return errTooDeep
	}
	if err := s.content(dir); err != nil {
		return err
	}
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if path := join(path, name); !s.damaged[path] && s.entry(dir, name, path, depth) != nil {
			s.damaged[path] = true
		}
	}
	return nil
}

func (s *salvage) entry(dir *os.File, name, path string, depth int) error {
	st, err := sys.LstatAt(dir, name)
	if err != nil {
		return err
	}
	switch typeOf(st) {
	case Dir:
		sub, err := sys.OpenSubdir(dir, name)
		if err != nil {
			return err
		}
		defer sub.Close()
		return s.dir(sub, path, depth+1)
	case File:
		f, err := sys.OpenBeneath(dir, name, os.O_RDONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		return s.content(f)
	case Link:
		_, err := sys.ReadlinkAt(dir, name)
		return err
	}
	return nil
}

// content returns errDamaged if some of f's content was never written to the disk.
func (s *salvage) content(f *os.File) error {
	extents, err := sys.Extents(f)
	if err != nil {
		return err
	}
	for _, e := range extents {
		if e.Unwritten || !e.Inline && !s.written(e.Physical, e.Physical+e.Length) {
			return errDamaged
		}
	}
	_, err = sys.Xattrs(f)
	return err
}

// written reports whether the bytes from start to end of the image have no hole.
func (s *salvage) written(start, end int64) bool {
	i, _ := slices.BinarySearchFunc(s.data, start, func(d [2]int64, at int64) int {
		if d[1] <= at {
			return -1
		}
		return 1
	})
	return i < len(s.data) && s.data[i][0] <= start && end <= s.data[i][1]
}
