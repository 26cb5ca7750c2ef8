package sys

import "golang.org/x/sys/unix"

// DieWithParent lets the kernel kill the calling process when the thread that is its parent ends
// (prctl(2), PR_SET_PDEATHSIG). It belongs to the calling thread, which the caller must have
// locked, and lives through its exec.
func DieWithParent() error {
	return callError("prctl PR_SET_PDEATHSIG",
		unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0))
}
