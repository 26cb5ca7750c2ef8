package probe

import "github.com/jail-sandbox/jail/jail/internal/sys"

// seccomp probes filters on all threads, a notifier, and the actions that a jail's filters use.
func seccomp() Finding {
	const name = "seccomp"
	err := sys.SeccompFlags()
	for _, action := range []uint32{sys.SeccompErrno, sys.SeccompTrace, sys.SeccompNotify,
		sys.SeccompKillProcess} {
		if err == nil {
			err = sys.SeccompAction(action)
		}
	}
	switch {
	case err == nil:
		return yes(name, "filters, for all threads at once, with a listener")
	case sys.NotThere(err):
		return no(name, "boot Linux 5.19 or newer, with CONFIG_SECCOMP_FILTER", "%v", err)
	case sys.Forbidden(err):
		return no(name, letIt, "%s", short(err))
	}
	return unknown(name, "%v", err)
}
