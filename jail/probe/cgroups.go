package probe

import (
	"strings"

	"github.com/jail-sandbox/jail/jail/cgroup"
)

// Cgroups looks for the controllers of control groups that limits need.
func Cgroups() Finding {
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
		return no(name, "enable them: on the kernel's command line, and in "+cgroup.Root+"/cgroup.subtree_control",
			"%s, without the controllers %s", layout, strings.Join(missing, ", "))
	}
	return yes(name, "%s, with %s", layout, strings.Join(cgroup.Needed, ", "))
}
