package workspace

import (
	"errors"
	"fmt"
	"os"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// An Attachment is a workspace on its way into a jail's mount namespace.
type Attachment struct {
	Lower  *os.File // from Workspace.Lower or CloneLower
	Upper  *os.File // from Workspace.Upper; nil: the real directory read-only, without a shadow
	UserNS *os.File // the user namespace whose id mapping both get; nil: owners stay who they are, and the tool is the user
	Base   uint32   // the host's id of that namespace's id 0
	Target string   // an existing directory
	Exec   bool     // what is in it may run
}

// Attach mounts the shadow on a.Target, with the owners of its files mapped by a.UserNS: what is in the layers keeps its real owners, and
// what the jail's user n writes belongs to n. It must be called on a locked thread in a private mount namespace, with the capabilities of root.
// The layers' descriptors stay open; the mounts that they stand for are used up.
//
// Overlays of id-mapped layers need Linux 5.19; the real directory must be on a file system with id-mapped mounts.
func Attach(a Attachment) error {
	if err := mapIDs(a.Lower, a.UserNS); err != nil {
		return fmt.Errorf("attach workspace: the file system of the directory cannot map owners: %w", err)
	}
	if a.Upper == nil {
		return attachAs(a, a.Lower)
	}
	if err := mapIDs(a.Upper, a.UserNS); err != nil {
		return fmt.Errorf("attach workspace: %w", err)
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

// overlayOf makes the overlay mount, detached. An overlay takes layers only from mounts that are attached, so they are stacked on the target
// for the moment that it takes to make its own copies of them.
func overlayOf(a Attachment) (overlay *os.File, err error) {
	for _, layer := range []*os.File{a.Lower, a.Upper} {
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
	return sys.MountOverlay(a.Lower, a.Upper, a.Base)
}
