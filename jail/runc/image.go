package runc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/guest"
	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// ownDir holds what jail itself puts into every root. Nothing of an image is there.
const ownDir = "/run/jail"

// mountImage mounts the root of an image on dir: an overlay of the directory source, which nothing
// ever writes to, below a fresh layer of memory, which ends with the jail. bytes and inodes are what
// the jail's own files and mount points take beside the plan's. Everything in the image belongs to
// the tool, whatever its owner on the host.
func mountImage(dir string, source *os.File, p jail.Plan, bytes, inodes int64) (err error) {
	image := p.ImageRoot()
	upper, err := sys.NewTmpfs(image.Size+bytes, image.Files+inodes)
	if err != nil {
		return err
	}
	defer upper.Close()
	uid, gid := p.IDs.Host()
	for _, name := range []string{"upper", "work"} {
		if err := makeLayerDir(upper, name, uid, gid); err != nil {
			return err
		}
	}
	var owner *os.File
	if !p.IDs.User {
		// Else the files belong to the user already, whose only id the jail has.
		owner, err = sys.NewUserNS(sys.UserNS{UIDs: []sys.IDMap{{Host: uid, Size: 1}},
			GIDs: []sys.IDMap{{Host: gid, Size: 1}}})
		if err != nil {
			return err
		}
		defer owner.Close()
	}
	// An overlay takes layers only from attached mounts.
	if err := sys.AttachMount(upper, dir); err != nil {
		return err
	}
	if err := sys.AttachTree(source, dir, sys.MountFlags{Exec: true}, owner); err != nil {
		return errors.Join(fmt.Errorf("the file system of the image cannot map owners: %w", err),
			sys.DetachTop(dir))
	}
	overlay, err := sys.MountOverlay(sys.Overlay{Lower: source, Upper: upper, ID: uid})
	err = errors.Join(err, sys.DetachTop(dir), sys.DetachTop(dir))
	if overlay != nil {
		defer overlay.Close()
	}
	if err != nil {
		return err
	}
	if err := sys.AttachMount(overlay, dir); err != nil {
		return err
	}
	return makeWay(dir, p)
}

func makeLayerDir(upper *os.File, name string, uid, gid uint32) error {
	if err := sys.MkdirAt(upper, name, 0o755); err != nil {
		return err
	}
	f, err := sys.OpenSubdirPath(upper, name)
	if err != nil {
		return err
	}
	defer f.Close()
	// Whatever the umask is.
	if err := sys.Chmod(f, 0o755); err != nil || sys.Rootless() {
		return err
	}
	return sys.Chown(f, uid, gid)
}

// makeWay makes the place of everything that the plan mounts or writes in the root of an image. This
// process goes to these places by their paths, so none of them may lead through a link of the image,
// which would lead to a place of the host. Nothing changes the root meanwhile.
func makeWay(dir string, p jail.Plan) error {
	if err := makePlace(dir, ownDir, true); err != nil {
		return err
	}
	places := []string{"/proc", "/" + devDir, guest.Self}
	for _, m := range p.Mounts {
		if m.Kind != jail.MountImage && !inDev(m) && !m.InProc() {
			places = append(places, m.Target)
		}
	}
	if p.Workspace != nil {
		places = append(places, p.Workspace.Target)
	}
	for _, f := range p.Files {
		places = append(places, f.Path)
	}
	// What lies in another one comes after it.
	slices.Sort(places)
	for _, place := range places {
		if err := makePlace(dir, place, false); err != nil {
			return err
		}
	}
	return nil
}

// makePlace makes the directories above a place of the root, and removes from the place what is no
// directory; if whole is set, a directory too.
func makePlace(dir, place string, whole bool) error {
	above, err := sys.MakeDirBelow(dir, path.Dir(place))
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("the image has a link or a file above %s, where the jail puts its own", place)
	}
	if err != nil {
		return err
	}
	defer above.Close()
	name := filepath.Base(place)
	st, err := sys.LstatAt(above, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil || st.Type() == syscall.S_IFDIR && !whole:
		return err
	}
	root, err := sys.OpenRoot(above)
	if err != nil {
		return err
	}
	defer root.Close()
	return root.RemoveAll(name)
}
