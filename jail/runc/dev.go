package runc

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// ptsOptions make a devpts that no other jail has a terminal in (the kernel's
// Documentation/filesystems/devpts.rst), with as many as one person can look at.
const ptsOptions = "newinstance,ptmxmode=0666,mode=0620,max=64"

func isPTS(m jail.Mount) bool { return m.Kind == jail.MountPTS }

// inDev reports whether a mount lies in the directory of the device nodes, which is made later.
func inDev(m jail.Mount) bool { return strings.HasPrefix(m.Target, "/"+devDir+"/") }

// devLinks are names for what a process has open already.
var devLinks = map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0",
	"stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"}

// mountInDev makes what the plan has in dir besides nodes. Of a devpts it makes the mount point
// only, except for bubblewrap: libcontainer mounts it inside the new namespaces.
func mountInDev(dir string, p jail.Plan) error {
	for _, m := range p.Mounts {
		if !inDev(m) {
			continue
		}
		target := filepath.Join(dir, strings.TrimPrefix(m.Target, "/"+devDir))
		if m.Kind == jail.MountTmpfs {
			if err := mountTmpfs(target, m, p.IDs); err != nil {
				return err
			}
			continue
		}
		if err := mountPoint(target, true); err != nil {
			return err
		}
		if isPTS(m) && p.ByBubblewrap() {
			// It knows a devpts only together with a /dev of its own.
			if err := sys.MountTerminals(target, ptsOptions, p.IDs.Base, p.IDs.HostGroup()); err != nil {
				return err
			}
		}
		if isPTS(m) {
			if err := os.Symlink(filepath.Join(filepath.Base(m.Target), "ptmx"),
				filepath.Join(dir, "ptmx")); err != nil {
				return err
			}
		}
	}
	if p.Command.Runner != jail.RunnerNative {
		return nil
	}
	for name, to := range devLinks {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// writeFiles makes the plan's files in the root.
func writeFiles(dir string, files []jail.File) error {
	for _, f := range files {
		path := filepath.Join(dir, f.Path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if f.Link != "" {
			if err := os.Symlink(f.Link, path); err != nil {
				return err
			}
			continue
		}
		if err := os.WriteFile(path, []byte(f.Text), 0o444); err != nil {
			return err
		}
		// Whatever the daemon's umask is.
		if err := os.Chmod(path, 0o444); err != nil {
			return err
		}
	}
	return nil
}
