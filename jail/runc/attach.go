package runc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// Attach gives a jail that was started without them the shadow of its workspace, or the state of
// its agent. Both are made where those of any jail are made, in the mount namespace of the thread
// that called Start, which must be the one that calls Attach, and a mount of them goes into the
// jail's own. There jail-init waits, restricted: it can mount nothing, so what target means is what
// Start made it. Its Landlock domain names the directory that the mount point is in.
//
// Mounts that a jail is started with are locked to it: the kernel keeps its own user namespace from
// changing what they refuse (mount_namespaces(7)). One that comes later is not. A shadow refuses
// nothing that its file system does not refuse by itself; a real directory that is read-only by its
// mount alone would, and so is never attached later.
func (j *Jail) Attach(o control.Order, lower, upper *os.File, frozen []*os.File) error {
	w, userns := j.plan.Workspace, j.later
	if userns == nil || !j.plan.HostsAgent() && (w == nil || !w.Shadow) {
		return errors.New("the jail waits for no shadow")
	}
	j.later = nil
	defer userns.Close()
	if j.plan.HostsAgent() {
		return j.attachState(lower, userns)
	}
	o.Later = false
	files := Files{Lower: lower, Upper: upper, Frozen: frozen}
	if err := attachWorkspace(j.root, o, files, userns); err != nil {
		return err
	}
	return j.passOn(w.Target)
}

// passOn gives the jail a mount of what was mounted for it at target.
func (j *Jail) passOn(target string) error {
	mount, err := sys.CloneMountOf(filepath.Join(j.root, target))
	if err != nil {
		return err
	}
	defer mount.Close()
	return sys.AttachIn(mount, j.PID, target)
}

// attachState gives a jail the directory of its agent's database. It refuses nothing by its mount
// alone but programs, devices and set-id bits, and a jail has no right to change that.
func (j *Jail) attachState(source, userns *os.File) error {
	i := slices.IndexFunc(j.plan.Mounts, func(m jail.Mount) bool { return m.Kind == jail.MountState })
	m := j.plan.Mounts[i]
	if err := bindFor(j.plan, source, filepath.Join(j.root, m.Target), m, userns); err != nil {
		return err
	}
	return j.passOn(m.Target)
}

// isShared reports whether a mount of the order's plan is one that comes from another jail.
func isShared(o control.Order, m jail.Mount) bool {
	return m.Kind == jail.MountTmpfs && slices.Contains(o.Shared, m.Target)
}

func attachShared(mount *os.File, target string, flags sys.MountFlags) error {
	if err := mountPoint(target, true); err != nil {
		return err
	}
	return sys.AttachShared(mount, target, flags)
}

// RefreshShadow has the shadow show its directory as it is now, but for what is in use.
func (j *Jail) RefreshShadow() error {
	if j.shadow == nil {
		return errors.New("refresh: the jail has no shadow")
	}
	return sys.ForgetNames(j.shadow)
}

// Share returns one more mount, detached, of what the jail has at target: the shadow of its
// workspace, or a tmpfs. It looks at the mounts that were made for the jail, in the mount namespace
// in which they were made and in which nothing of the jail has ever run: what the jail does to its
// own does not matter. It must be called on the thread that called Start.
func (j *Jail) Share(target string) (*os.File, error) {
	if w := j.plan.Workspace; w != nil && w.Target == target && j.shadow != nil {
		return sys.CloneTree(j.shadow)
	}
	if !slices.ContainsFunc(j.plan.Mounts,
		func(m jail.Mount) bool { return m.Kind == jail.MountTmpfs && m.Target == target }) {
		return nil, fmt.Errorf("share %s: the jail has neither a shadow nor a tmpfs there", target)
	}
	return sys.CloneMountOf(filepath.Join(j.root, target))
}
