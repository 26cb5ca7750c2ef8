package probe

import "github.com/jail-sandbox/jail/jail/internal/sys"

// Landlock probes the ABI version of Landlock.
func Landlock() Finding {
	const name = "landlock"
	abi, err := sys.LandlockABI()
	switch {
	case err == nil:
		return yes(name, "version %d", abi)
	case sys.NotThere(err):
		return no(name,
			"boot with landlock in the kernel's lsm= list, or with a kernel that has it", "%v", err)
	case sys.Forbidden(err):
		return no(name, letIt, "%s", short(err))
	}
	return unknown(name, "%v", err)
}
