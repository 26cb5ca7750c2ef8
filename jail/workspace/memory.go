package workspace

import (
	"errors"
	"fmt"
	"os"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// A user's daemon can make no loop device and mount no ext4. Its layers are a tmpfs each, with the same two limits, whose content is memory of the
// run until the workspace is kept: then it is written to upper.img as one file (see archive), and read back from there into a tmpfs to be reviewed.

// ErrNoMarks says that the kernel's tmpfs cannot carry what an overlay of a user must note there.
var ErrNoMarks = errors.New("the kernel's tmpfs has no attributes of users, which a shadow without root needs: boot Linux 6.6 or newer")

// inodesOfMemory are those that a layer takes besides the tool's: its root, upper and work, three that the overlay makes in the latter, and two of room
// for attributes, which a tmpfs counts as inodes.
const inodesOfMemory = 8

// A lostMemory is ErrLost for a layer that lay in memory.
type lostMemory struct{}

func (lostMemory) Error() string {
	return "what was written lay in the memory of a jaild that was killed, and is gone with it"
}
func (lostMemory) Is(err error) bool { return err == ErrLost }

// newMemory makes an empty layer. It is attached on top of the store in this process's own mount namespace, where nobody looks it up by its name,
// since an older kernel makes no second mount of one that is attached nowhere.
func (w *Workspace) newMemory(inodes int64) (err error) {
	if w.mount, err = sys.NewTmpfs(w.meta.Bytes, inodes+inodesOfMemory); err != nil {
		return err
	}
	if ok, err := sys.HasUserXattrs(w.mount); err != nil || !ok {
		if err == nil {
			err = ErrNoMarks
		}
		return err
	}
	return w.attachMemory()
}

func (w *Workspace) attachMemory() error {
	at, err := sys.PathOf(w.store.dir)
	if err != nil {
		return err
	}
	if err := sys.AttachMount(w.mount, at); err != nil {
		return err
	}
	w.memory = true
	return nil
}

// detachMemory is called before the layer is closed.
func (w *Workspace) detachMemory() error {
	if !w.memory {
		return nil
	}
	w.memory = false
	return sys.DetachMount(w.mount)
}

// keepMemory writes the layer down. The file is empty until then, and what is not whole is no layer: its last line says that it is.
func (w *Workspace) keepMemory() error {
	upper, err := w.openUpper()
	if err != nil {
		return err
	}
	defer upper.Close()
	if err := w.image.Truncate(0); err != nil {
		return err
	}
	if _, err := w.image.Seek(0, 0); err != nil {
		return err
	}
	if err := writeArchive(w.image, upper); err != nil {
		return fmt.Errorf("write the layer down: %w", err)
	}
	return nil
}

// readMemory makes the layer of a workspace that an earlier process kept. The file is open already, and locked.
func (w *Workspace) readMemory() (err error) {
	if st, err := sys.Fstat(w.image); err != nil || st.Size == 0 {
		return errors.Join(err, lostMemory{})
	}
	// One that took all of its room takes a little more where its directories had been made smaller.
	if w.mount, err = sys.NewTmpfs(w.meta.Bytes+1<<20, 2*w.meta.Inodes+inodesOfMemory); err != nil {
		return err
	}
	if err := sys.MkdirAt(w.mount, "upper", 0o700); err != nil {
		return err
	}
	upper, err := w.openUpper()
	if err != nil {
		return err
	}
	defer upper.Close()
	if err := readArchive(w.image, upper); err != nil {
		return fmt.Errorf("upper.img: %w", err)
	}
	return sys.MakeReadOnly(w.mount)
}

// ownerOf is whose a directory of the layer is to be. Groups that are not the user's own look like nobody's to a user's daemon, and cannot be given.
func ownerOf(uid, gid uint32) (uint32, uint32) {
	if sys.Rootless() {
		return uint32(os.Geteuid()), uint32(os.Getegid())
	}
	return uid, gid
}

// mark is the beginning of the names of an overlay's own attributes.
func mark() string {
	if sys.Rootless() {
		return "user.overlay."
	}
	return "trusted.overlay."
}
