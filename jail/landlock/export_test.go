package landlock

import "github.com/jail-sandbox/jail/jail"

// Versions is how many versions of the interface the table has.
const Versions = len(byABI) - 1

// RestrictAs restricts the calling thread as on a kernel that has no newer version of the
// interface.
func RestrictAs(l jail.Landlock, abi int) error { return restrict(l, abi, oneThread) }

// Handled is what a version restricts: rights on files, on ports, and scopes, as numbers of rights.
func Handled(abi int) (files, ports, scopes uint64) {
	c := byABI[abi]
	return uint64(c.HandledAccessFS), uint64(c.HandledAccessNet), uint64(c.Scoped)
}
