package runc

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// Attach gives a jail the shadow of its workspace that was started without it, from the layers that
// the run has. It is made where that of any jail is made, in the mount namespace of the thread that
// called Start, which must be the one that calls this, and a mount of it goes into the jail's own.
// There jail-init waits, restricted: it can mount nothing, so what target means is what Start made
// it. Its Landlock domain names the directory that the mount point is in.
//
// Mounts that a jail is started with are locked to it: the kernel keeps its own user namespace from
// changing what they refuse (mount_namespaces(7)). One that comes later is not. A shadow refuses
// nothing that its file system does not refuse by itself; a real directory that is read-only by its
// mount alone would, and so is never attached later.
func (j *Jail) Attach(o control.Order, lower, upper *os.File) error {
	w, l := j.plan.Workspace, j.later
	if l == nil || w == nil || !w.Shadow {
		return errors.New("the jail waits for no shadow")
	}
	j.later = nil
	defer l.userns.Close()
	o.Later = false
	if err := attachWorkspace(j.root, o, Files{Lower: lower, Upper: upper}, l.userns); err != nil {
		return err
	}
	mount, err := sys.CloneMountOf(filepath.Join(j.root, w.Target))
	if err != nil {
		return err
	}
	defer mount.Close()
	return sys.AttachIn(mount, j.PID, w.Target)
}
