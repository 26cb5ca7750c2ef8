package sys

import (
	"golang.org/x/sys/unix"
)

// PollFD is one descriptor to wait for.
type PollFD = unix.PollFd

// Poll events.
const (
	PollIn   = unix.POLLIN
	PollOut  = unix.POLLOUT
	PollErr  = unix.POLLERR
	PollHup  = unix.POLLHUP
	PollNval = unix.POLLNVAL
)

// Poll waits until a descriptor is ready or the time is over; a nil time waits
// for ever. It reports how many descriptors have events. A signal ends the
// wait early with zero, so the caller asks the clock again.
func Poll(fds []PollFD, timeout *Timespec) (int, error) {
	n, err := unix.Ppoll(fds, timeout, nil)
	if err == unix.EINTR {
		return 0, nil
	}
	if err != nil {
		return 0, wrap("ppoll", "", err)
	}
	return n, nil
}

// Clock reads a clock, in nanoseconds.
func Clock(id int32) (int64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		return 0, wrap("clock_gettime", "", err)
	}
	return ts.Nano(), nil
}

// ClockResolution reads the resolution of a clock, in nanoseconds.
func ClockResolution(id int32) (int64, error) {
	var ts unix.Timespec
	if err := unix.ClockGetres(id, &ts); err != nil {
		return 0, wrap("clock_getres", "", err)
	}
	return ts.Nano(), nil
}

// Yield lets another thread run.
func Yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
