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

// Attach gives a jail that was started with Order.Later the shadow of its workspace, or the state
// of its agent. It must be called on the thread that called Start: it mounts them in that thread's
// mount namespace and then attaches a copy in the jail's. jail-init waits there, restricted, and
// can mount nothing, so the target is still what Start made. The rule of its Landlock domain is on
// the directory above the mount point.
//
// The mounts that a jail starts with are locked: its user namespace cannot change their flags
// (mount_namespaces(7)). A later mount is not locked, so nothing may depend on its flags. A real
// directory that only its mount makes read-only is therefore never attached later.
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

// passOn attaches a copy of the mount at target, below j.root, at target in the jail.
func (j *Jail) passOn(target string) error {
	mount, err := sys.CloneMountOf(filepath.Join(j.root, target))
	if err != nil {
		return err
	}
	defer mount.Close()
	return sys.AttachIn(mount, j.PID, target)
}

// attachState attaches the directory of the agent's database. Of the mount's flags only noexec,
// nodev and nosuid matter, and no process of the jail has the capability to change them.
func (j *Jail) attachState(source, userns *os.File) error {
	i := slices.IndexFunc(j.plan.Mounts, func(m jail.Mount) bool { return m.Kind == jail.MountState })
	m := j.plan.Mounts[i]
	if err := bindFor(j.plan, source, filepath.Join(j.root, m.Target), m, userns); err != nil {
		return err
	}
	return j.passOn(m.Target)
}

// isShared reports whether m is a tmpfs that comes from another jail (Order.Shared).
func isShared(o control.Order, m jail.Mount) bool {
	return m.Kind == jail.MountTmpfs && slices.Contains(o.Shared, m.Target)
}

func attachShared(mount *os.File, target string, flags sys.MountFlags) error {
	if err := mountPoint(target, true); err != nil {
		return err
	}
	return sys.AttachShared(mount, target, flags)
}

// RefreshShadow makes the shadow show the present state of its directory, except for files in use.
func (j *Jail) RefreshShadow() error {
	if j.shadow == nil {
		return errors.New("refresh: the jail has no shadow")
	}
	return sys.ForgetNames(j.shadow)
}

// Share returns a detached copy of the jail's mount at target: the shadow of its workspace, or a
// tmpfs. It copies from the mount namespace in which Start mounted them, where no process of the
// jail runs, so the jail cannot influence the result. It must be called on the thread that called
// Start.
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
