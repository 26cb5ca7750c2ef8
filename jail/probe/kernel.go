package probe

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// leastMajor and leastMinor are the oldest supported kernel. Linux 5.19 added overlays of id-mapped
// layers, which keep the owners of files in a shadow.
const leastMajor, leastMinor = 5, 19

// runningKernel checks that the running kernel is Linux 5.19 or newer, by its version alone. A
// version of another form is Unknown.
func runningKernel() Finding {
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return unknown("kernel", "%v", err)
	}
	return kernel(strings.TrimSpace(string(text)))
}

func kernel(release string) Finding {
	var major, minor int
	if n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor); n != 2 {
		return unknown("kernel", "version %q has another form", release)
	}
	if major < leastMajor || major == leastMajor && minor < leastMinor {
		return no("kernel", fmt.Sprintf("boot Linux %d.%d or newer", leastMajor, leastMinor),
			"Linux %s; shadows need %d.%d", release, leastMajor, leastMinor)
	}
	return yes("kernel", "Linux %s", release)
}

// firstFixed is the major version from which kernels may refuse to narrow a mounted proc.
const firstFixed = 7

// ProcFixed reports whether the kernel refuses to take everything but processes from a proc that is
// mounted already (subset=pid). Where this process may not try it the version decides, and a jail
// with fewer files is better than none.
func ProcFixed() (bool, error) {
	narrows, err := sys.NarrowsProc()
	if err == nil || !Refused(err) {
		return !narrows, err
	}
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return false, err
	}
	major, _, _ := strings.Cut(string(text), ".")
	n, err := strconv.Atoi(major)
	return n >= firstFixed, err
}

// machineFiles says whether programs of the host find files of their jail's own in /proc, from what
// ProcFixed returned. No run needs them.
func machineFiles(fixed bool, err error) Finding {
	const name = "files of proc"
	switch {
	case err != nil:
		return unknown(name, "%v", err)
	case fixed:
		return Finding{Name: name, Answer: Off, Detail: "the kernel changes no mounted proc, so " +
			"programs of the host find no cpuinfo, meminfo, stat, loadavg, uptime and mounts in /proc"}
	}
	return yes(name, "programs of the host find their limits in /proc/cpuinfo and meminfo")
}

// Landlock probes the ABI version of Landlock.
func Landlock() Finding {
	abi, err := sys.LandlockABI()
	return tried("landlock", err,
		"boot with landlock in the kernel's lsm= list, or with a kernel that has it", "version %d", abi)
}

// seccomp probes filters on all threads, a notifier, and the actions that a jail's filters use.
func seccomp() Finding {
	err := sys.SeccompFlags()
	for _, action := range []uint32{sys.SeccompErrno, sys.SeccompTrace, sys.SeccompNotify,
		sys.SeccompKillProcess} {
		if err == nil {
			err = sys.SeccompAction(action)
		}
	}
	return tried("seccomp", err, "boot Linux 5.19 or newer, with CONFIG_SECCOMP_FILTER",
		"filters, for all threads at once, with a listener")
}

// overlay checks whether the kernel has overlayfs, which shadows use.
func overlay() Finding {
	const name = "overlayfs"
	if f, other := onlyRoot(name); other {
		return f
	}
	return tried(name, sys.HasFilesystem("overlay"),
		"modprobe overlay, or boot a kernel with CONFIG_OVERLAY_FS", "the kernel has it")
}

// tryCgroup makes a cgroup with limits beside those of the jails, and removes it.
func tryCgroup(slice string) error {
	path := fmt.Sprintf("%s/probe.%d", slice, os.Getpid())
	err := cgroup.MakeSlice(path, cgroup.Ceiling{Memory: 1 << 20, PIDs: 1})
	return errors.Join(err, cgroup.Remove(path))
}

// Cgroups probes the controllers that limits need, and makes a cgroup below slice. An ordinary
// user's slice is the one that Delegation finds.
func Cgroups(slice string) Finding {
	if forUser() {
		return Delegation()
	}
	const name = "control groups"
	layout, err := cgroup.Detect()
	if err != nil {
		return no(name, "mount control groups on "+cgroup.Root, "%v", err)
	}
	missing, err := cgroup.Missing()
	switch {
	case err != nil:
		return unknown(name, "%s: %v", layout, err)
	case len(missing) > 0:
		return no(name, "enable them: on the kernel's command line, and in "+cgroup.Root+
			"/cgroup.subtree_control",
			"%s, without the controllers %s", layout, strings.Join(missing, ", "))
	}
	if err := tryCgroup(slice); err != nil {
		return no(name, "mount control groups so that this process can make some: "+cgroup.Root+
			" is read-only, or not this process's to write",
			"%s, but none can be made: %s", layout, short(err))
	}
	return yes(name, "%s, with %s", layout, strings.Join(cgroup.Needed, ", "))
}

// ids is the range of host ids of the attempts: the last range that jails get.
var ids = []sys.IDMap{{Inside: 0, Host: lastBase, Size: jail.BaseSize}}

const lastBase = jail.FirstBase + (jail.Bases-1)*jail.BaseSize

// UserNamespace makes a user namespace with the ids of a jail.
func UserNamespace() Finding {
	const name = "user namespaces"
	if forUser() {
		return userNamespaceOfUser(name)
	}
	ns, err := sys.NewUserNS(sys.UserNS{UIDs: ids, GIDs: ids})
	if err != nil {
		return no(name, usernsFix(err), "%s", short(err))
	}
	ns.Close()
	return yes(name, "one was made, with 65536 ids from %d", lastBase)
}

// usernsFix returns what to do, by the errno of each cause that can refuse user namespaces
// (clone(2)).
func usernsFix(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return "raise the sysctl user.max_user_namespaces: it is 0, or as many exist"
	case errors.Is(err, syscall.EACCES):
		return "let jaild make them: a security module forbids it, under AppArmor a profile " +
			"without \"userns,\""
	case errors.Is(err, syscall.EINVAL):
		return "boot a kernel with CONFIG_USER_NS"
	}
	return "check the sysctls user.max_user_namespaces and kernel.unprivileged_userns_clone, and " +
		"what a container's filter or AppArmor (kernel.apparmor_restrict_unprivileged_userns) " +
		"forbids"
}
