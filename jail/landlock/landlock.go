// Package landlock turns a plan's Landlock section into a domain of the calling process
// (landlock(7)). It is the only importer of go-landlock and does not use that library's best
// effort: the kernel enforces the whole plan, or the call fails.
package landlock

import (
	"fmt"
	"io/fs"
	"os"
	"runtime"

	golandlock "github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// byABI holds, for each ABI version, every right that the kernel can restrict.
var byABI = [...]golandlock.Config{
	1: golandlock.V1, 2: golandlock.V2, 3: golandlock.V3, 4: golandlock.V4, 5: golandlock.V5,
	6: golandlock.V6,
	7: golandlock.V7, 8: golandlock.V8, 9: golandlock.V9, 10: golandlock.V10, 11: golandlock.V11,
}

const (
	readRights  = golandlock.AccessFSSet(ll.AccessFSReadFile | ll.AccessFSReadDir)
	writeRights = golandlock.AccessFSSet(
		ll.AccessFSWriteFile | ll.AccessFSRemoveDir | ll.AccessFSRemoveFile |
			ll.AccessFSMakeDir | ll.AccessFSMakeReg | ll.AccessFSMakeSym |
			ll.AccessFSTruncate | ll.AccessFSRefer)
	fileRights = golandlock.AccessFSSet(
		ll.AccessFSReadFile | ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSExecute |
			ll.AccessFSIoctlDev)
	execRights = golandlock.AccessFSSet(ll.AccessFSExecute)
	// Programs control devices by ioctl(2).
	deviceRights = golandlock.AccessFSSet(ll.AccessFSIoctlDev)
	// From version 9 on the kernel refuses to connect to the socket of another domain, which each
	// invocation of a session has.
	pipeRights = golandlock.AccessFSSet(
		ll.AccessFSMakeFifo | ll.AccessFSMakeSock | ll.AccessFSResolveUnix)
)

// ABI returns the Landlock ABI version of the running kernel, 1 or more.
func ABI() (int, error) { return sys.LandlockABI() }

// Restrict puts all threads of the calling process into a domain that handles every right of the
// running kernel and grants only the rules of l. No rule grants making devices. TCP is granted for
// the ports of l only; with l.Network the domain does not handle TCP. Restrict fails if the
// kernel's ABI is below l.MinABI.
//
// If the kernel cannot restrict all threads at once, a signal interrupts each thread. The kernel
// drops such a signal when its user has too many pending ones. RestrictThread needs no signal.
func Restrict(l jail.Landlock) error { return restrictAll(l, allThreads) }

// RestrictThread is Restrict for the calling thread alone, which the caller must have locked. A
// program that this thread executes has the domain on every thread.
func RestrictThread(l jail.Landlock) error { return restrictAll(l, oneThread) }

func restrictAll(l jail.Landlock, enforce enforcer) error {
	abi, err := sys.LandlockABI()
	if err != nil {
		return err
	}
	if abi < l.MinABI {
		return fmt.Errorf("landlock version %d: the plan needs %d or newer", abi, l.MinABI)
	}
	return restrict(l, abi, enforce)
}

// restrict is Restrict for a given ABI version.
func restrict(l jail.Landlock, abi int, enforce enforcer) error {
	config := byABI[min(abi, len(byABI)-1)]
	attr := ll.RulesetAttr{HandledAccessFS: uint64(config.HandledAccessFS),
		HandledAccessNet: uint64(config.HandledAccessNet),
		Scoped:           uint64(config.Scoped)}
	if !l.Scoped {
		attr.Scoped = 0
	}
	if l.Network {
		attr.HandledAccessNet = 0
	}
	fd, err := ll.LandlockCreateRuleset(&attr, 0)
	if err != nil {
		return fmt.Errorf("landlock_create_ruleset: %w", err)
	}
	ruleset := os.NewFile(uintptr(fd), "landlock ruleset")
	defer ruleset.Close()
	for _, r := range l.Rules {
		if err := addPath(fd, r, config.HandledAccessFS); err != nil {
			return fmt.Errorf("landlock rule: %w", err)
		}
	}
	for _, port := range l.Ports {
		if attr.HandledAccessNet == 0 {
			break
		}
		rule := ll.NetPortAttr{AllowedAccess: ll.AccessNetBindTCP | ll.AccessNetConnectTCP,
			Port: uint64(port)}
		if err := ll.LandlockAddNetPortRule(fd, &rule, 0); err != nil {
			return fmt.Errorf("landlock rule: port %d: %w", port, err)
		}
	}
	flags := uint32(0)
	// Logging restricts nothing: an older kernel logs nothing and refuses the same.
	if l.Told && abi >= jail.LandlockTells {
		flags = ll.FlagRestrictSelfLogNewExecOn
	}
	if err := enforce(fd, flags); err != nil {
		return fmt.Errorf("landlock_restrict_self: %w", err)
	}
	return nil
}

func addPath(ruleset int, r jail.LandlockRule, handled golandlock.AccessFSSet) error {
	node, err := sys.OpenTarget(r.Path)
	if err != nil {
		return err
	}
	defer node.Close()
	info, err := node.Stat()
	if err != nil {
		return err
	}
	set := rights(r) & handled
	if !info.IsDir() {
		// The kernel refuses directory rights on a file.
		set &= fileRights
	}
	if set == 0 {
		// The kernel refuses a rule without rights.
		return nil
	}
	rule := ll.PathBeneathAttr{AllowedAccess: uint64(set), ParentFd: int(node.Fd())}
	if err := ll.LandlockAddPathBeneathRule(ruleset, &rule, 0); err != nil {
		return &fs.PathError{Op: "landlock_add_rule", Path: r.Path, Err: err}
	}
	return nil
}

// enforcer applies a ruleset to threads.
type enforcer func(ruleset int, flags uint32) error

func oneThread(ruleset int, flags uint32) error {
	if err := sys.NoNewPrivs(); err != nil {
		return err
	}
	return ll.LandlockRestrictSelf(ruleset, flags)
}

// allAtOnce is the first ABI version in which the kernel restricts all threads at once.
const allAtOnce = 8

func allThreads(ruleset int, flags uint32) error {
	abi, err := sys.LandlockABI()
	if err != nil {
		return err
	}
	if abi >= allAtOnce {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		return oneThread(ruleset, flags|ll.FlagRestrictSelfTSync)
	}
	if err := ll.AllThreadsPrctl(sys.NoNewPrivsOption, 1, 0, 0, 0); err != nil {
		return err
	}
	return ll.AllThreadsLandlockRestrictSelf(ruleset, flags)
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
