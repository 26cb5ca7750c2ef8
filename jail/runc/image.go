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

// ownDir holds jail's own files in every root. makeWay removes the image's.
const ownDir = "/run/jail"

// mountImage mounts the root of an image on dir: an overlay of source, which is never written to,
// and a fresh tmpfs as the upper layer. bytes and inodes are added to the tmpfs for the jail's own
// files and mount points. Everything in the image belongs to the tool, not to its owner on the host.
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
		// In a user's jail the files belong to its only user already.
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

// makeWay prepares the paths at which the plan mounts or writes in the root of an image. This
// process uses them by path, so a link of the image in one of them, which could lead to the host,
// is an error. Nothing else changes the root meanwhile.
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
	// A directory comes before the paths in it.
	slices.Sort(places)
	for _, place := range places {
		if err := makePlace(dir, place, false); err != nil {
			return err
		}
	}
	return nil
}

// makePlace makes the directories above place and removes what is there: a file or link, and with
// whole also a directory. A link or file in a directory's place above is an error.
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
