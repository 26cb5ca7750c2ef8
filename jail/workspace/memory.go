package workspace

import (
	"errors"
	"fmt"
	"os"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// A user's daemon can make no loop device and mount no ext4. Its layers are a tmpfs each, with the
// same two limits, whose content is memory of the run until the workspace is kept. Then it is
// written to upper.img as one file (see archive), and read from there into a tmpfs for a review.

// errNoMarks is returned if the kernel's tmpfs lacks the extended attributes that an overlay of a
// user needs.
var errNoMarks = errors.New(
	"the kernel's tmpfs has no user extended attributes, which a shadow without root needs: boot " +
		"Linux 6.6 or newer")

// inodesOfMemory are the inodes of a layer beside the tool's: its root, upper and work, three that
// the overlay makes in work, and two for attributes, which a tmpfs counts as inodes.
const inodesOfMemory = 8

// lostMemory is errLost for a layer in memory.
type lostMemory struct{}

func (lostMemory) Error() string {
	return "what was written lay in the memory of a jaild that was killed, and is gone with it"
}
func (lostMemory) Is(err error) bool { return err == errLost }

// newMemory makes an empty layer. It is attached on top of the store in this process's own mount
// namespace, since an older kernel makes no second mount of a detached one. Nobody looks it up by
// its name there.
func (l *layer) newMemory(store *os.File, bytes, inodes int64) (err error) {
	if l.mount, err = sys.NewTmpfs(bytes, inodes+inodesOfMemory); err != nil {
		return err
	}
	if ok, err := sys.HasUserXattrs(l.mount); err != nil || !ok {
		if err == nil {
			err = errNoMarks
		}
		return err
	}
	return l.attachMemory(store)
}

// attachMemory attaches the tmpfs on top of the directory of the store.
func (l *layer) attachMemory(store *os.File) error {
	at, err := sys.PathOf(store)
	if err != nil {
		return err
	}
	if err := sys.AttachMount(l.mount, at); err != nil {
		return err
	}
	l.memory = true
	return nil
}

// detachMemory must be called before the layer is closed.
func (l *layer) detachMemory() error {
	if !l.memory {
		return nil
	}
	l.memory = false
	return sys.DetachMount(l.mount)
}

// keepMemory writes the layer to its file, which is empty until then. The last line of the file
// marks it as complete.
func (l *layer) keepMemory() error {
	upper, err := l.openOwn()
	if err != nil {
		return err
	}
	defer upper.Close()
	if err := l.image.Truncate(0); err != nil {
		return err
	}
	if _, err := l.image.Seek(0, 0); err != nil {
		return err
	}
	if err := writeArchive(l.image, upper); err != nil {
		return fmt.Errorf("write the layer down: %w", err)
	}
	return nil
}

// readMemory makes the layer of a workspace that an earlier process kept, of at most bytes and
// inodes. The image is open already, and locked.
func (l *layer) readMemory(bytes, inodes int64) (err error) {
	if st, err := sys.Fstat(l.image); err != nil || st.Size == 0 {
		return errors.Join(err, lostMemory{})
	}
	// One that took all of its room takes a little more where its directories had been made
	// smaller.
	if l.mount, err = sys.NewTmpfs(bytes+1<<20, 2*inodes+inodesOfMemory); err != nil {
		return err
	}
	if err := sys.MkdirAt(l.mount, "upper", 0o700); err != nil {
		return err
	}
	upper, err := l.openOwn()
	if err != nil {
		return err
	}
	defer upper.Close()
	if err := readArchive(l.image, upper); err != nil {
		return fmt.Errorf("upper.img: %w", err)
	}
	return sys.MakeReadOnly(l.mount)
}

// ownerOf returns the owner of a directory of the layer. To a user's daemon other groups than the
// user's first look like nobody's, and cannot be given.
func ownerOf(uid, gid uint32) (uint32, uint32) {
	if sys.Rootless() {
		return uint32(os.Geteuid()), uint32(os.Getegid())
	}
	return uid, gid
}

// mark returns the prefix of an overlay's own attributes.
func mark() string {
	if sys.Rootless() {
		return "user.overlay."
	}
	return "trusted.overlay."
}
