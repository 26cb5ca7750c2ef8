package libseccomp

import (
	"fmt"
	"sync"

	lib "github.com/seccomp/libseccomp-golang"
)

// firstCommon is the first number that means the same on every architecture.
const firstCommon = 424

// common are the calls from firstCommon on, as of Linux 6.19. The table is our own, because an
// older libseccomp does not know newer calls. A call that is neither in the table nor, below
// firstCommon, known to libseccomp is unknown here.
var common = map[string]int{
	"pidfd_send_signal":       424,
	"io_uring_setup":          425,
	"io_uring_enter":          426,
	"io_uring_register":       427,
	"open_tree":               428,
	"move_mount":              429,
	"fsopen":                  430,
	"fsconfig":                431,
	"fsmount":                 432,
	"fspick":                  433,
	"pidfd_open":              434,
	"clone3":                  435,
	"close_range":             436,
	"openat2":                 437,
	"pidfd_getfd":             438,
	"faccessat2":              439,
	"process_madvise":         440,
	"epoll_pwait2":            441,
	"mount_setattr":           442,
	"quotactl_fd":             443,
	"landlock_create_ruleset": 444,
	"landlock_add_rule":       445,
	"landlock_restrict_self":  446,
	"memfd_secret":            447,
	"process_mrelease":        448,
	"futex_waitv":             449,
	"set_mempolicy_home_node": 450,
	"cachestat":               451,
	"fchmodat2":               452,
	"map_shadow_stack":        453,
	"futex_wake":              454,
	"futex_wait":              455,
	"futex_requeue":           456,
	"statmount":               457,
	"listmount":               458,
	"lsm_get_self_attr":       459,
	"lsm_set_self_attr":       460,
	"lsm_list_modules":        461,
	"mseal":                   462,
	"setxattrat":              463,
	"getxattrat":              464,
	"listxattrat":             465,
	"removexattrat":           466,
	"open_tree_attr":          467,
	"file_getattr":            468,
	"file_setattr":            469,
	"listns":                  470,
	"rseq_slice_yield":        471,
}

// NumberOf returns the number of a system call on this architecture. An unknown name is an error.
func NumberOf(name string) (int, error) {
	if n, ok := common[name]; ok {
		return n, nil
	}
	n, err := lib.GetSyscallFromName(name)
	if err != nil || n < 0 || n >= firstCommon {
		return 0, fmt.Errorf("seccomp filter: system call %q is not known here", name)
	}
	return int(n), nil
}

var commonNames = sync.OnceValue(func() map[int]string {
	names := make(map[int]string, len(common))
	for name, n := range common {
		names[n] = name
	}
	return names
})

// NameOf returns the name of a system call on this architecture, and false for an unknown number.
func NameOf(number int) (string, bool) {
	switch {
	case number < 0:
		return "", false
	case number >= firstCommon:
		name, ok := commonNames()[number]
		return name, ok
	}
	name, err := lib.ScmpSyscall(number).GetName()
	return name, err == nil
}
