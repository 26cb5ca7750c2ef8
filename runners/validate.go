package runners

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/jail-sandbox/jail/policy/paths"
)

// errInvocation is wrapped by every error of Invocation.Validate.
var errInvocation = errors.New("bad invocation")

// MaxArgBytes bounds the arguments and the environment together, as the kernel
// bounds those of a native program.
const MaxArgBytes = 2 << 20

// checks are the parts of Validate. Each returns an error for one kind of problem.
var checks = [...]func(*Invocation) error{checkArgs, checkEnv, checkMounts, checkCwd, checkLayout,
	checkLimits}

// Validate returns an error for the first thing that is wrong with the invocation.
func (inv *Invocation) Validate() error {
	for _, check := range checks {
		if err := check(inv); err != nil {
			return fmt.Errorf("%w: %w", errInvocation, err)
		}
	}
	return nil
}

func checkArgs(inv *Invocation) error {
	if len(inv.Args) == 0 {
		return errors.New("no arguments: the first is the name of the command")
	}
	size := 0
	for i, a := range inv.Args {
		if strings.IndexByte(a, 0) >= 0 {
			return fmt.Errorf("argument %d has a NUL byte", i)
		}
		size += len(a) + 1
	}
	for _, e := range inv.Env {
		size += len(e) + 1
	}
	if size > MaxArgBytes {
		return fmt.Errorf("arguments and environment take %d bytes, more than %d", size,
			MaxArgBytes)
	}
	return nil
}

func checkEnv(inv *Invocation) error {
	for i, e := range inv.Env {
		if strings.IndexByte(e, 0) >= 0 {
			return fmt.Errorf("environment entry %d has a NUL byte", i)
		}
		if strings.IndexByte(e, '=') < 1 {
			return fmt.Errorf("environment entry %d is not NAME=VALUE", i)
		}
	}
	return nil
}

func checkMounts(inv *Invocation) error {
	for i, m := range inv.Mounts {
		if !path.IsAbs(m.Path) || path.Clean(m.Path) != m.Path || strings.IndexByte(m.Path,
			0) >= 0 {
			return fmt.Errorf("mount %q is not a clean absolute path", m.Path)
		}
		for _, o := range inv.Mounts[:i] {
			if o.Path == m.Path {
				return fmt.Errorf("mount %s is given twice", m.Path)
			}
			// A mount in a mount would have two sets of rights on the same names.
			if paths.Within(o.Path, m.Path) || paths.Within(m.Path, o.Path) {
				return fmt.Errorf("mount %s and mount %s are one inside the other", o.Path, m.Path)
			}
		}
	}
	return nil
}

func checkCwd(inv *Invocation) error {
	if inv.Cwd == "" {
		return nil
	}
	if !path.IsAbs(inv.Cwd) || path.Clean(inv.Cwd) != inv.Cwd {
		return fmt.Errorf("working directory %q is not a clean absolute path", inv.Cwd)
	}
	return nil
}

func checkLayout(inv *Invocation) error {
	switch inv.Layout {
	case "", LayoutRooted, LayoutPreopens, LayoutWorking:
		return nil
	}
	return fmt.Errorf("layout %q is none of %s, %s and %s", inv.Layout, LayoutRooted,
		LayoutPreopens, LayoutWorking)
}

func checkLimits(inv *Invocation) error {
	switch {
	case inv.MemoryLimit < 0:
		return errors.New("the memory limit is negative")
	case inv.OpenFiles < 0:
		return errors.New("the limit of open files is negative")
	case inv.Module.Bytes < 0 || inv.Module.Functions < 0:
		return errors.New("a module limit is negative")
	}
	return nil
}

// FilesTarget is the directory in which a module finds the files of its order, read-only.
const FilesTarget = "/agent"

// Bounds of the files of an order.
const (
	MaxFiles      = 200
	MaxFilesBytes = 1 << 20
)

// CheckFiles returns an error for invalid files of an order: names that are not clean relative
// paths, or too large or too many files.
func CheckFiles(files map[string][]byte) error {
	if len(files) > MaxFiles {
		return fmt.Errorf("%d files, more than %d", len(files), MaxFiles)
	}
	size := 0
	for name, text := range files {
		if !fs.ValidPath(name) || name == "." {
			return fmt.Errorf("file %.60q: want a relative path", name)
		}
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, ok := files[dir]; ok {
				return fmt.Errorf("file %.60q: its directory is a file, too", name)
			}
		}
		size += len(name) + len(text)
	}
	if size > MaxFilesBytes {
		return fmt.Errorf("the files have %d bytes, more than %d", size, MaxFilesBytes)
	}
	return nil
}
