package sys

import (
	"os/signal"
	"syscall"
)

// IgnoreFileSizeSignal makes a write beyond RLIMIT_FSIZE fail with EFBIG, as
// the guest can understand, where the signal would end the whole process.
func IgnoreFileSizeSignal() { signal.Ignore(syscall.SIGXFSZ) }
