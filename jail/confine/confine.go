// Package confine restricts processes of the host that read untrusted data outside of a jail. The
// fetch proxy keeps the network and nothing else. The reader of repositories keeps the descriptors
// that the daemon sends it.
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

// Filter returns the seccomp allow-list for Network, which jail-shim compiles.
func Filter() seccomp.Filter { return seccomp.NewFilter(seccomp.NetworkGroups...) }

// ReaderFilter returns the seccomp allow-list for Reader, which jail-shim compiles.
func ReaderFilter() seccomp.Filter { return seccomp.NewFilter(seccomp.ReaderGroups...) }

const (
	maxFiles = 4096 // descriptors
	// maxData bounds the memory of a reader, in bytes.
	maxData = 512 << 20
)

// Network irreversibly confines all threads of the calling process: rlimits; no file of the host
// (Landlock); the user and group uid, which for a user's daemon must be the user's own; no
// capabilities; not dumpable or traceable; and filter, compiled seccomp instructions. Open
// descriptors stay open. On error the process must end.
func Network(uid uint32, filter []byte) error { return process(uid, filter, true, nil) }

// Reader is Network for a process that only reads descriptors: it has no network, and its memory is
// limited to maxData.
func Reader(uid uint32, filter []byte) error {
	return process(uid, filter, false, map[string]uint64{"data": maxData})
}

func process(uid uint32, filter []byte, network bool, limits map[string]uint64) error {
	if uid == 0 || len(filter) == 0 {
		return errors.New("confine: no user id or no filter")
	}
	// Rootless reads a file, which Landlock refuses afterwards.
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
	// The namespace of a user's daemon has no other id.
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
	// After the change of ids, which resets it.
	if err := sys.SetDumpable(false); err != nil {
		return fmt.Errorf("confine: %w", err)
	}
	if err := sys.LoadFilter(filter); err != nil {
		return fmt.Errorf("confine: %w", err)
	}
	return nil
}
