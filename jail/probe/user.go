package probe

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// forUser reports whether the probes are for an ordinary user's daemon.
func forUser() bool { return os.Geteuid() != 0 }

// apparmorFix is an AppArmor profile that exempts jaild from the restriction of user namespaces
// (AppArmor 4, Ubuntu 23.10 and later).
const apparmorFix = "let jaild make them: put into /etc/apparmor.d/jaild \"abi <abi/4.0>, include " +
	"<tunables/global> profile jaild PATH-OF-jaild flags=(unconfined) { userns, }\" " +
	"and run apparmor_parser -r /etc/apparmor.d/jaild, or set the sysctl " +
	"kernel.apparmor_restrict_unprivileged_userns to 0 for every program"

// refusing lists the sysctls that keep users from making user namespaces, with the value that does
// so and its fix.
var refusing = []struct{ path, value, fix string }{
	{"/proc/sys/user/max_user_namespaces", "0",
		"raise the sysctl user.max_user_namespaces, which is 0: sysctl -w " +
			"user.max_user_namespaces=15000"},
	{"/proc/sys/kernel/unprivileged_userns_clone", "0",
		"set the sysctl kernel.unprivileged_userns_clone to 1"},
	{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", apparmorFix},
}

// userNamespaceOfUser makes the user namespace of a user's daemon. Inside that namespace it makes
// the one of a jail.
func userNamespaceOfUser(name string) Finding {
	ids := func(id int) []sys.IDMap { return []sys.IDMap{{Inside: 0, Host: uint32(id), Size: 1}} }
	var err error
	if sys.Rootless() {
		var ns *os.File
		if ns, err = sys.NewUserNS(sys.UserNS{UIDs: ids(os.Geteuid()),
			GIDs: ids(os.Getegid())}); err == nil {
			ns.Close()
			err = sys.OwnMounts()
		}
	} else {
		err = sys.TryNamespaces()
	}
	if err == nil {
		return yes(name, "one was made, with the one id %d", os.Geteuid())
	}
	return no(name, userNamespaceFix(err, os.ReadFile), "a user may make none: %s", short(err))
}

func userNamespaceFix(err error, read func(string) ([]byte, error)) string {
	for _, r := range refusing {
		if text, readErr := read(r.path); readErr == nil &&
			strings.TrimSpace(string(text)) == r.value {
			return r.fix
		}
	}
	return usernsFix(err)
}

// Delegation probes the cgroup that a user's service manager delegates to the user. A user's daemon
// can limit runs only in such a cgroup.
func Delegation() Finding {
	const name = "control groups"
	layout, err := cgroup.Detect()
	if err != nil {
		return no(name, "mount control groups on "+cgroup.Root, "%v", err)
	}
	offered, untold := managed(layout), untoldManager(os.Getenv("XDG_RUNTIME_DIR"),
		fmt.Sprintf("/run/user/%d", os.Geteuid()))
	if missing := without(offered); offered != nil && len(missing) > 0 {
		return no(name, delegationFix(layout, offered, untold),
			"%s: the user's service manager has not been left the controllers %s", layout,
			strings.Join(missing, ", "))
	}
	if sys.Rootless() {
		slice, err := cgroup.Delegated()
		if err == nil {
			err = tryCgroup(slice)
		}
		if err == nil {
			return yes(name, "%s, with %s below %s", layout, strings.Join(cgroup.Needed, ", "),
				slice)
		}
		return no(name, delegationFix(layout, offered, untold),
			"%s, but none that is this user's to limit runs with: %v", layout, err)
	}
	if offered != nil {
		return yes(name, "%s, with %s from the user's service manager", layout,
			strings.Join(cgroup.Needed, ", "))
	}
	if err := cgroup.Owned(); err != nil {
		return no(name, delegationFix(layout, nil, untold),
			"%s, but none is this user's, and a run without its limits is refused: %v", layout, err)
	}
	return yes(name, "%s, delegated to this process", layout)
}

// managed returns the controllers that were delegated to the user's service manager, nil without
// such a manager.
func managed(layout cgroup.Layout) []string {
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if layout != cgroup.V2 || !filepath.IsAbs(dir) {
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, "systemd/private")); err != nil {
		return nil
	}
	uid := os.Geteuid()
	text, err := os.ReadFile(filepath.Join(cgroup.Root,
		fmt.Sprintf("user.slice/user-%d.slice/user@%d.service/cgroup.controllers", uid, uid)))
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}

func without(offered []string) (missing []string) {
	for _, c := range cgroup.Needed {
		if !slices.Contains(offered, c) {
			missing = append(missing, c)
		}
	}
	return missing
}

// untoldManager returns the directory of the user's service manager if XDG_RUNTIME_DIR does not
// name it: su, sudo and cron leave the variable out.
func untoldManager(told, dir string) string {
	if _, err := os.Stat(filepath.Join(dir, "systemd/private")); err != nil || told == dir {
		return ""
	}
	return dir
}

func delegationFix(layout cgroup.Layout, offered []string, untold string) string {
	switch {
	case layout != cgroup.V2:
		return "boot with cgroup v2 alone (systemd.unified_cgroup_hierarchy=1), whose groups a " +
			"service manager can leave to users, or use a jaild of root's"
	case offered == nil && untold != "":
		return "set XDG_RUNTIME_DIR=" + untold +
			", where this user's service manager is; or use a jaild of root's"
	case offered == nil:
		return "log in so that systemd runs a manager for the user (XDG_RUNTIME_DIR is set then), " +
			"or let it run always: sudo loginctl enable-linger " +
			fmt.Sprint(os.Geteuid()) + "; or use a jaild of root's"
	}
	return "sudo systemctl edit user@.service, and put in: [Service] Delegate=cpu memory pids io; " +
		"then log in anew"
}

// marks probes whether a tmpfs, which holds a user's shadows, takes the extended attributes of an
// overlay.
func marks() Finding {
	const name = "shadow marks"
	mount, err := sys.NewTmpfs(1<<20, 16)
	if err != nil {
		return no(name, "see the lines above", "no tmpfs: %s", short(err))
	}
	defer mount.Close()
	ok, err := sys.HasUserXattrs(mount)
	switch {
	case err != nil && !errors.Is(err, os.ErrPermission):
		return unknown(name, "%v", err)
	case err != nil || !ok:
		return no(name, "boot Linux 6.6 or newer, or use a jaild of root's",
			"the kernel's tmpfs has no attributes of users")
	}
	return yes(name, "the kernel's tmpfs has attributes of users")
}

// Layers probes the storage of a shadow's changes.
func Layers() []Finding {
	if forUser() {
		return []Finding{marks()}
	}
	return []Finding{loopDevices(), mkfs()}
}

// allForUser makes the probes for a user's daemon. Outside of that daemon's namespaces it leaves
// out those that need them.
func allForUser(scratch string) []Finding {
	all := []Finding{runningKernel(), UserNamespace(), Delegation(), seccomp(), Landlock()}
	if sys.Rootless() {
		all = append(all, overlay(), marks(), shadow(scratch))
	}
	return append(all, room(scratch), machineFiles(ProcFixed()))
}
