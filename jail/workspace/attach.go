package workspace

import (
	"errors"
	"fmt"
	"os"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// Attachment is a workspace that is mounted into a jail's mount namespace.
type Attachment struct {
	// Lower is from Workspace.Lower or CloneLower.
	Lower *os.File
	// Upper is from Workspace.Upper; nil mounts the real directory read-only, without a shadow.
	Upper *os.File
	// Frozen are the layers between the two, the newest first; from FrozenLayers.
	Frozen []*os.File
	// UserNS is the user namespace whose id mapping both layers get; nil leaves owners unmapped,
	// and the tool is the user.
	UserNS *os.File
	// Base is the host's id of id 0 of that namespace.
	Base uint32
	// Target is an existing directory.
	Target string
	// Exec lets its files be executed.
	Exec bool
}

// Attach mounts the shadow on a.Target, with owners mapped by a.UserNS: files in the layers keep
// their real owners, and files that the jail's user n writes belong to n. The caller must hold a
// locked thread in a private mount namespace, with root's capabilities. The descriptors of the
// layers stay open; their mounts are used up.
//
// Overlays of id-mapped layers need Linux 5.19; the file system of the real directory must support
// id-mapped mounts.
func Attach(a Attachment) error {
	if err := mapIDs(a.Lower, a.UserNS); err != nil {
		return fmt.Errorf(
			"attach workspace: the file system of the directory cannot map owners: %w", err)
	}
	if a.Upper == nil {
		return attachAs(a, a.Lower)
	}
	for _, layer := range append([]*os.File{a.Upper}, a.Frozen...) {
		if err := mapIDs(layer, a.UserNS); err != nil {
			return fmt.Errorf("attach workspace: %w", err)
		}
	}
	overlay, err := overlayOf(a)
	if err != nil {
		return fmt.Errorf("attach workspace: %w", err)
	}
	defer overlay.Close()
	return attachAs(a, overlay)
}

func mapIDs(mount, userns *os.File) error {
	if userns == nil {
		return nil
	}
	return sys.MapMountIDs(mount, userns)
}

func attachAs(a Attachment, mount *os.File) error {
	if !a.Exec {
		if err := sys.RefuseExec(mount); err != nil {
			return fmt.Errorf("attach workspace: %w", err)
		}
	}
	return sys.AttachMount(mount, a.Target)
}

// overlayOf makes the overlay mount, detached. An overlay takes layers only from attached mounts,
// so they are mounted on the target until the overlay has its own copies.
func overlayOf(a Attachment) (overlay *os.File, err error) {
	for _, layer := range append([]*os.File{a.Lower, a.Upper}, a.Frozen...) {
		if err := sys.AttachMount(layer, a.Target); err != nil {
			return nil, err
		}
		defer func() {
			err = errors.Join(err, sys.DetachTop(a.Target))
			if err != nil && overlay != nil {
				overlay.Close()
				overlay = nil
			}
		}()
	}
	return sys.MountOverlay(sys.Overlay{Lower: a.Lower, Frozen: a.Frozen, Upper: a.Upper,
		ID: a.Base})
}
