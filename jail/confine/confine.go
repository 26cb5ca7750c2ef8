// Package confine takes from a process of the host, which is in no jail, all that it does not need:
// the fetch proxy reads what strangers send from both sides, and keeps the network and nothing
// else.
package confine

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/jail/landlock"
	"github.com/jail-sandbox/jail/jail/seccomp"
)

// Filter is the allow-list of system calls of a process that only speaks to the network, to be
// compiled by jail-shim.
func Filter() seccomp.Filter { return seccomp.NewFilter(seccomp.NetworkGroups...) }

const maxFiles = 4096 // descriptors

// Network confines the calling process, all of its threads, in order: no core dumps and few
// descriptors; nobody may trace or read it; no file of the host, by Landlock; an id that is nobody
// else's, and with it no capability (of a user's daemon the user's id, and no capability); no
// system call beyond the filter's. The descriptors that are open stay. It cannot be undone. On
// error the process must end.
func Network(uid uint32, filter []byte) error {
	if uid == 0 || len(filter) == 0 {
		return errors.New("confine: no user id or no filter")
	}
	// Asked while files can still be read.
	rootless := sys.Rootless()
	signal.Ignore(syscall.SIGPIPE)
	for name, value := range map[string]uint64{"core": 0, "nofile": maxFiles, "fsize": 0,
		"memlock": 0} {
		if err := sys.SetRlimit(sys.Rlimits[name], value); err != nil {
			return fmt.Errorf("confine: rlimit %s: %w", name, err)
		}
	}
	if err := landlock.Restrict(jail.Landlock{MinABI: 1, Scoped: true, Network: true}); err != nil {
		return fmt.Errorf("confine: %w", err)
	}
	id := int(uid)
	// A user's daemon has no id but the user's to give.
	if rootless {
		if id != os.Geteuid() {
			return fmt.Errorf("confine: user %d: only %d can be had", uid, os.Geteuid())
		}
		if err := sys.DropCapabilities(); err != nil {
			return fmt.Errorf("confine: %w", err)
		}
	} else if err := errors.Join(syscall.Setgroups(nil), syscall.Setresgid(id, id, id),
		syscall.Setresuid(id, id, id)); err != nil {
		return fmt.Errorf("confine: user %d: %w", uid, err)
	}
	// After the change of ids, which sets it anew.
	if err := sys.SetDumpable(false); err != nil {
		return fmt.Errorf("confine: %w", err)
	}
	if err := sys.LoadFilter(filter); err != nil {
		return fmt.Errorf("confine: %w", err)
	}
	return nil
}
