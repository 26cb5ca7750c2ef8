package probe

import (
	"fmt"
	"os"
	"strings"

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

// Landlock probes the ABI version of Landlock.
func Landlock() Finding {
	const name = "landlock"
	abi, err := sys.LandlockABI()
	switch {
	case err == nil:
		return yes(name, "version %d", abi)
	case sys.NotThere(err):
		return no(name,
			"boot with landlock in the kernel's lsm= list, or with a kernel that has it", "%v", err)
	case sys.Forbidden(err):
		return no(name, letIt, "%s", short(err))
	}
	return unknown(name, "%v", err)
}

// seccomp probes filters on all threads, a notifier, and the actions that a jail's filters use.
func seccomp() Finding {
	const name = "seccomp"
	err := sys.SeccompFlags()
	for _, action := range []uint32{sys.SeccompErrno, sys.SeccompTrace, sys.SeccompNotify,
		sys.SeccompKillProcess} {
		if err == nil {
			err = sys.SeccompAction(action)
		}
	}
	switch {
	case err == nil:
		return yes(name, "filters, for all threads at once, with a listener")
	case sys.NotThere(err):
		return no(name, "boot Linux 5.19 or newer, with CONFIG_SECCOMP_FILTER", "%v", err)
	case sys.Forbidden(err):
		return no(name, letIt, "%s", short(err))
	}
	return unknown(name, "%v", err)
}
