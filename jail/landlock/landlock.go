// Package landlock turns a plan's Landlock section into a domain of the calling process (landlock(7)). It is the only user of
// go-landlock, and it does not take that library's best effort: what the plan asks for is enforced or the call fails.
package landlock

import (
	"fmt"
	"os"

	golandlock "github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// byABI holds, for each version of the kernel's interface, everything that it can restrict.
var byABI = [...]golandlock.Config{
	1: golandlock.V1, 2: golandlock.V2, 3: golandlock.V3, 4: golandlock.V4, 5: golandlock.V5, 6: golandlock.V6,
	7: golandlock.V7, 8: golandlock.V8, 9: golandlock.V9, 10: golandlock.V10, 11: golandlock.V11,
}

const (
	readRights  = golandlock.AccessFSSet(ll.AccessFSReadFile | ll.AccessFSReadDir)
	writeRights = golandlock.AccessFSSet(ll.AccessFSWriteFile | ll.AccessFSRemoveDir | ll.AccessFSRemoveFile |
		ll.AccessFSMakeDir | ll.AccessFSMakeReg | ll.AccessFSMakeSym | ll.AccessFSTruncate | ll.AccessFSRefer)
	fileRights = golandlock.AccessFSSet(ll.AccessFSReadFile | ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSExecute | ll.AccessFSIoctlDev)
	execRights = golandlock.AccessFSSet(ll.AccessFSExecute)
	// devices are asked and told things by ioctl(2)
	deviceRights = golandlock.AccessFSSet(ll.AccessFSIoctlDev)
	pipeRights   = golandlock.AccessFSSet(ll.AccessFSMakeFifo | ll.AccessFSMakeSock)
)

// ABI returns the Landlock version of the running kernel, 1 or more.
func ABI() (int, error) { return sys.LandlockABI() }

// Restrict puts the calling process into a domain that handles every right that the running kernel knows and grants
// only the rules of l. No rule grants making devices, and only the ports of l any TCP; l.Network leaves TCP out of the domain.
// It fails when the kernel's version is below l.MinABI.
func Restrict(l jail.Landlock) error {
	abi, err := sys.LandlockABI()
	if err != nil {
		return err
	}
	if abi < l.MinABI {
		return fmt.Errorf("landlock version %d: the plan needs %d or newer", abi, l.MinABI)
	}
	return restrict(l, abi)
}

// restrict is Restrict with what a version of the interface has.
func restrict(l jail.Landlock, abi int) error {
	config := byABI[min(abi, len(byABI)-1)]
	if !l.Scoped {
		config.Scoped = 0
	}
	if l.Network {
		config.HandledAccessNet = 0
	}
	rules := make([]golandlock.Rule, 0, len(l.Rules)+2*len(l.Ports))
	if config.HandledAccessNet != 0 {
		for _, port := range l.Ports {
			rules = append(rules, golandlock.BindTCP(port), golandlock.ConnectTCP(port))
		}
	}
	for _, r := range l.Rules {
		set := rights(r) & config.HandledAccessFS
		info, err := os.Stat(r.Path)
		if err != nil {
			return fmt.Errorf("landlock rule: %w", err)
		}
		if !info.IsDir() {
			set &= fileRights // the kernel refuses a directory's rights on a file
		}
		rules = append(rules, golandlock.PathAccess(set, r.Path))
	}
	if l.Told && abi >= jail.LandlockTells { // it is no wall: an older kernel tells nothing, and refuses the same
		config = config.EnableLoggingForSubprocesses()
	}
	if err := config.Restrict(rules...); err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	return nil
}

func rights(r jail.LandlockRule) golandlock.AccessFSSet {
	set := readRights
	if r.Write {
		set |= writeRights
	}
	if r.Exec {
		set |= execRights
	}
	if r.Device {
		set |= deviceRights
	}
	if r.Pipes {
		set |= pipeRights
	}
	return set
}
