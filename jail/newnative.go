package jail

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/policy"
)

// Places and bounds of jails of native programs.
const (
	ptsDir         = "/dev/pts"
	shmDir         = "/dev/shm"
	nativeTmpFiles = 1 << 17  // inodes of each tmpfs: a compiler's cache is many small files
	maxShm         = 64 << 20 // bytes
	shmFiles       = 1024
)

func outerGroups(c Command) []string {
	if c.Runner == RunnerNative {
		return append(slices.Clone(InitGroups), NativeGroups...)
	}
	return InitGroups
}

func innerGroups(c Command) []string {
	if c.Runner == RunnerNative {
		return NativeGroups
	}
	return WASIGroups
}

// AllMayRun reports whether policy lets everything below dir, the workspace or a tmpfs, run as a program of the host. A tree is executable as a whole or not at all: what a program may come to
// be called that is not there yet, no rule of the kernel can say.
func AllMayRun(pol policy.Policy, dir string) bool {
	return policy.MustGlobs(dir + "/**").LessEq(pol.Tools.Native)
}

// newTmpfs holds programs that may run only where policy lets all of it run, and many files only where compilers work.
func newTmpfs(pol policy.Policy, c Command, target string, size int64) Mount {
	m := Mount{Kind: MountTmpfs, Target: target, Write: true, Size: size, Files: tmpFiles}
	if c.Runner == RunnerNative {
		m.Files, m.Exec = nativeTmpFiles, AllMayRun(pol, target)
	}
	return m
}

// nativeMounts are what programs of the host expect of every system.
func nativeMounts(c Command, tmp int64) []Mount {
	mounts := []Mount{{Kind: MountTmpfs, Target: shmDir, Write: true, Size: min(tmp, maxShm), Files: shmFiles}}
	if c.Terminal {
		mounts = append(mounts, Mount{Kind: MountPTS, Target: ptsDir, Write: true})
	}
	return mounts
}

func newDevices(c Command) []string {
	devices := []string{"null", "zero", "full", "random", "urandom"}
	if c.Terminal {
		devices = append(devices, "tty")
	}
	return devices
}

// nativeRules open the device nodes, with what an ioctl may ask of them, and the files that are made for the jail.
func nativeRules(p Plan) []LandlockRule {
	rules := []LandlockRule{{Path: "/dev", Write: true, Device: true}}
	for _, f := range p.Files {
		rules = append(rules, LandlockRule{Path: f.Path})
	}
	return rules
}

// newFiles are a system's tables of users and names, with nobody of the host in them. A policy that mounts its own has its own.
func newFiles(pol policy.Policy, r Request) []File {
	if r.Command.Runner != RunnerNative {
		return nil
	}
	ids := newIDs(r)
	home := "/"
	for _, v := range r.Command.Env {
		if dir, ok := strings.CutPrefix(v, "HOME="); ok && path.IsAbs(dir) && !strings.ContainsAny(dir, ":\n") {
			home = dir
		}
	}
	users, groups := fmt.Sprintf("tool:x:%d:%d:tool:%s:/bin/sh\n", ids.UID, ids.GID, home), fmt.Sprintf("tool:x:%d:\n", ids.GID)
	if ids.UID != 0 {
		users = "root:x:0:0:root:/:/bin/sh\n" + users
	}
	if ids.GID != 0 {
		groups = "root:x:0:\n" + groups
	}
	var files []File
	for _, f := range []File{
		{"/etc/passwd", users + "nobody:x:65534:65534:nobody:/:/bin/false\n"},
		{"/etc/group", groups + "nogroup:x:65534:\n"},
		{"/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"},
		{"/etc/hosts", "127.0.0.1 localhost jail\n::1 localhost\n"},
	} {
		if !slices.ContainsFunc(pol.Mounts, func(m policy.Mount) bool { return within(m.Target, f.Path) }) {
			files = append(files, f)
		}
	}
	return files
}

// checkNative refuses what holds for modules only: their engine looks at every name before the kernel does.
func checkNative(pol policy.Policy, r Request) error {
	if r.Command.Runner != RunnerNative {
		return nil
	}
	if r.Workspace != nil && pol.Workspace.Access == policy.WorkspaceRead && len(pol.Workspace.Hide) > 0 {
		return errors.New(`workspace.hide hides nothing from a program of the host where workspace.access is "read"; use "shadow"`)
	}
	return nil
}
