// Package mounts opens the host files that a jail mounts, detects whether they have changed, and
// tells which mounts the jails of a session share.
package mounts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/asuser"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/hostlayers"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// Files are the descriptors of the mount sources for one launch of a jail. Close closes only those
// passed to Own. The others belong to a session, which reuses them.
type Files struct {
	launch.Files
	own []*os.File
}

// Own adds descriptors that Close closes.
func (f *Files) Own(files ...*os.File) { f.own = append(f.own, files...) }

// Close closes the descriptors passed to Own.
func (f *Files) Close() {
	for _, file := range f.own {
		file.Close()
	}
}

// IsModule reports whether a bind mount has a module that the daemon compiled, rather than a file
// of the host.
func IsModule(m jail.Mount) bool { return strings.HasPrefix(m.Target, jail.CacheDir+"/") }

// Shared reports whether all jails of a session mount the same instance of m: the tmpfs mounts of
// the policy, except below /dev. It is not about mount propagation.
func Shared(m jail.Mount) bool {
	return m.Kind == jail.MountTmpfs && !strings.HasPrefix(m.Target, "/dev/")
}

// openCache returns a mount of the caller's cache for m, which it makes if needed.
func openCache(p jail.Plan, m jail.Mount, c asuser.Caller, host hostlayers.Host) (*os.File, error) {
	store, err := workspace.Open(filepath.Join(host.StateDir, "workspaces"))
	if err != nil {
		return nil, problem.New(problem.Failed, "caches: %w", err)
	}
	defer store.Close()
	owner := workspace.CacheOwner{Name: m.Name, UID: c.UID, Policy: p.Policy}
	for _, l := range p.Layers {
		if l.Name != policy.CeilingLayer {
			// The second layer is the profile.
			owner.Profile = l.Name
			break
		}
	}
	f, _, err := store.Caches().Open(workspace.CacheSpec{ID: m.Source, Owner: owner, Size: m.Size,
		UID: p.IDs.UID, GID: p.IDs.GID})
	switch {
	case errors.Is(err, workspace.ErrNoSpace):
		return nil, problem.New(problem.Failed, "mount %s: %w", m.Target, err).
			WithHint("make room, end other runs, or remove caches: jail cache list")
	case errors.Is(err, workspace.ErrCacheInUse):
		return nil, problem.New(problem.Busy, "mount %s: %w", m.Target, err).WithHint("try again")
	case problem.Short(err) != nil:
		return nil, err
	case err != nil:
		return nil, host.Failed("mounts", fmt.Errorf("mount %s: %w", m.Target, err))
	}
	return f, nil
}

// Binds opens the sources of a plan's bind mounts, caches and image, in order: compiled modules,
// caches and images with the daemon's rights, others with the caller's. The caller closes the
// returned files, also beside an error.
func Binds(p jail.Plan, c asuser.Caller, host hostlayers.Host) (all []*os.File, err error) {
	for _, m := range p.Mounts {
		if m.Kind == jail.MountCache {
			f, err := openCache(p, m, c, host)
			if err != nil {
				return all, err
			}
			all = append(all, f)
		}
		if m.Kind != jail.MountBind && m.Kind != jail.MountImage {
			continue
		}
		open := c.Open
		if IsModule(m) || m.Kind == jail.MountImage {
			open = os.Open
		}
		f, err := open(m.Source)
		if problem.Short(err) != nil {
			return all, err
		}
		if err != nil {
			return all, problem.New(problem.NotFound, "mount %s: %s", m.Target,
				problem.Describe(err)).
				WithHint("a [[mount]] of the policy names it")
		}
		tree, err := launch.Clone(f)
		f.Close()
		if err != nil {
			return all, host.Failed("mounts", fmt.Errorf("mount %s: %w", m.Target, err))
		}
		all = append(all, tree)
	}
	return all, nil
}

// An Inode identifies a file or directory of the host by device and inode number (inode(7)).
type Inode struct{ Dev, Ino uint64 }

// InodeOf returns the inode of the file that info describes.
func InodeOf(info fs.FileInfo) Inode {
	st := info.Sys().(*syscall.Stat_t)
	return Inode{st.Dev, st.Ino}
}

// Inodes returns the inodes of open files, or nil if fstat(2) of one fails.
func Inodes(files []*os.File) []Inode {
	all := []Inode{}
	for _, f := range files {
		info, err := f.Stat()
		if err != nil {
			return nil
		}
		all = append(all, InodeOf(info))
	}
	return all
}
