package sys

import (
	"time"

	"golang.org/x/sys/unix"
)

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
