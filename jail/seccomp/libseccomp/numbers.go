package libseccomp

import (
	"fmt"
	"slices"
	"strings"

	lib "github.com/seccomp/libseccomp-golang"
)

// firstCommon is the first number that means the same on every architecture.
const firstCommon = 424

// common are the calls from firstCommon on, as of Linux 6.19, by their number. The list is our own,
// because an older libseccomp does not know newer calls. A call that is neither in the list nor,
// below firstCommon, known to libseccomp is unknown here.
var common = strings.Fields(`
	pidfd_send_signal io_uring_setup io_uring_enter io_uring_register open_tree move_mount
	fsopen fsconfig fsmount fspick pidfd_open clone3 close_range openat2 pidfd_getfd
	faccessat2 process_madvise epoll_pwait2 mount_setattr quotactl_fd
	landlock_create_ruleset landlock_add_rule landlock_restrict_self memfd_secret
	process_mrelease futex_waitv set_mempolicy_home_node cachestat fchmodat2
	map_shadow_stack futex_wake futex_wait futex_requeue statmount listmount
	lsm_get_self_attr lsm_set_self_attr lsm_list_modules mseal setxattrat getxattrat
	listxattrat removexattrat open_tree_attr file_getattr file_setattr listns
	rseq_slice_yield`)

// NumberOf returns the number of a system call on this architecture. An unknown name is an error.
func NumberOf(name string) (int, error) {
	if i := slices.Index(common, name); i >= 0 {
		return firstCommon + i, nil
	}
	n, err := lib.GetSyscallFromName(name)
	if err != nil || n < 0 || n >= firstCommon {
		return 0, fmt.Errorf("seccomp filter: system call %q is not known here", name)
	}
	return int(n), nil
}

// NameOf returns the name of a system call on this architecture, and false for an unknown number.
func NameOf(number int) (string, bool) {
	switch {
	case number < 0 || number >= firstCommon+len(common):
		return "", false
	case number >= firstCommon:
		return common[number-firstCommon], true
	}
	name, err := lib.ScmpSyscall(number).GetName()
	return name, err == nil
}
