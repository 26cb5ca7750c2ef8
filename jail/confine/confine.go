// Package confine takes from a process of the host, which is in no jail, all that it does not need:
// the fetch proxy reads what strangers send from both sides, and keeps the network and nothing
// else. The reader of repositories reads what tools wrote, and keeps the descriptors that the
// daemon sends it.
package confine

import (
	"errors"
	"fmt"
	"maps"
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

// ReaderFilter is the allow-list of a process that reads descriptors and speaks to the daemon by
// its descriptor 3.
func ReaderFilter() seccomp.Filter { return seccomp.NewFilter(seccomp.ReaderGroups...) }

const (
	maxFiles = 4096 // descriptors
	// maxData bounds the memory of a reader, in bytes.
	maxData = 512 << 20
)

// Network confines the calling process, all of its threads, in order: no core dumps and few
// descriptors; nobody may trace or read it; no file of the host, by Landlock; an id that is nobody
// else's, and with it no capability (of a user's daemon the user's id, and no capability); no
// system call beyond the filter's. The descriptors that are open stay. It cannot be undone. On
// error the process must end.
func Network(uid uint32, filter []byte) error { return process(uid, filter, true, nil) }

// Reader is Network for a process that reads descriptors alone: it has no network either, and
// little memory.
func Reader(uid uint32, filter []byte) error {
	return process(uid, filter, false, map[string]uint64{"data": maxData})
}

func process(uid uint32, filter []byte, network bool, limits map[string]uint64) error {
	if uid == 0 || len(filter) == 0 {
		return errors.New("confine: no user id or no filter")
	}
	// Asked while files can still be read.
	rootless := sys.Rootless()
	signal.Ignore(syscall.SIGPIPE)
	limit := map[string]uint64{"core": 0, "nofile": maxFiles, "fsize": 0, "memlock": 0}
	maps.Copy(limit, limits)
	for name, value := range limit {
		if err := sys.SetRlimit(name, value, value); err != nil {
			return fmt.Errorf("confine: %w", err)
		}
	}
	rules := jail.Landlock{MinABI: 1, Scoped: true, Network: network}
	if err := landlock.Restrict(rules); err != nil {
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
