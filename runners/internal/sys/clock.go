package sys

import (
	"time"

	"golang.org/x/sys/unix"
)

// PollFD is one descriptor to wait for.
type PollFD = unix.PollFd

// Poll events.
const (
	PollIn  = unix.POLLIN
	PollOut = unix.POLLOUT
	PollHup = unix.POLLHUP
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

// A Thread is a thread of this process, whose CPU time any other thread may read.
type Thread struct{ clock int32 }

// ThisThread returns the thread that calls it. The goroutine must stay on that thread
// (runtime.LockOSThread).
func ThisThread() Thread {
	// The clock of a thread by its number, as pthread_getcpuclockid(3) computes it: the thread's
	// own time (4), measured by the scheduler (2).
	return Thread{int32(^unix.Gettid()<<3 | 4 | 2)}
}

// CPUTime returns how long the thread has run.
func (t Thread) CPUTime() (time.Duration, error) {
	n, err := Clock(t.clock)
	return time.Duration(n), err
}
