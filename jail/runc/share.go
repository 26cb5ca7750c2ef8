package runc

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// IsShared reports whether a mount of the order's plan is one that comes from another jail.
func IsShared(o control.Order, m jail.Mount) bool {
	return m.Kind == jail.MountTmpfs && slices.Contains(o.Shared, m.Target)
}

func attachShared(mount *os.File, target string, flags sys.MountFlags) error {
	if err := mountPoint(target, true); err != nil {
		return err
	}
	return sys.AttachShared(mount, target, flags)
}

// Share returns one more mount, detached, of what the jail has at target: the shadow of its
// workspace, or a tmpfs. It looks at the mounts that were made for the jail, in the mount namespace
// in which they were made and in which nothing of the jail has ever run: what the jail does to its
// own does not matter. It must be called on the thread that called Start.
func (j *Jail) Share(target string) (*os.File, error) {
	w := j.plan.Workspace
	shadow := w != nil && w.Shadow && w.Target == target
	if !shadow && !slices.ContainsFunc(j.plan.Mounts,
		func(m jail.Mount) bool { return m.Kind == jail.MountTmpfs && m.Target == target }) {
		return nil, fmt.Errorf("share %s: the jail has neither a shadow nor a tmpfs there", target)
	}
	return sys.CloneMountOf(filepath.Join(j.root, target))
}
