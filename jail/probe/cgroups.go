package probe

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/jail-sandbox/jail/jail/cgroup"
)

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
