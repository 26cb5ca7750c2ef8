// Package calm reduces the processor time of a daemon that works for short moments.
//
// While a Go program works, a thread of its runtime repeatedly sleeps for 20 µs to watch the
// others. The kernel may wake it later by the timer slack, 50 µs by default (PR_SET_TIMERSLACK,
// prctl(2)). In a program that works for a few milliseconds at a time this takes a third of its
// processor time. With more slack the thread sleeps longer, and so does every other timer, by at
// most the slack.
package calm

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

const (
	slack        = 500 * time.Microsecond
	defaultSlack = 50 * time.Microsecond
)

// Self executes the program anew with more timer slack, since a thread gets the slack of the first
// thread at its start. It returns if the slack is set already or cannot be set, which only costs
// processor time.
func Self() {
	// Execve keeps the slack of the thread that calls it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if now, err := get(); err != nil || now == slack {
		return
	}
	self, err := os.Executable()
	if err != nil || set(slack) != nil {
		return
	}
	// Since Linux 6.13 a real-time thread has no slack: the program would execute itself for ever.
	if now, err := get(); err != nil || now != slack {
		return
	}
	// If that fails, the program continues as it is.
	_ = syscall.Exec(self, os.Args, os.Environ())
}

// Start starts cmd with the default timer slack, whatever slack this program has.
func Start(cmd *exec.Cmd) error {
	// A process has the slack of the thread that forks it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if now, err := get(); err == nil && now != defaultSlack && set(defaultSlack) == nil {
		defer func() { _ = set(now) }()
	}
	return cmd.Start()
}

func get() (time.Duration, error) {
	n, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, getTimerSlack, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return time.Duration(n), nil
}

func set(to time.Duration) error {
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, setTimerSlack, uintptr(to), 0); errno != 0 {
		return errno
	}
	return nil
}

// PR_SET_TIMERSLACK and PR_GET_TIMERSLACK of <linux/prctl.h>.
const (
	setTimerSlack = 29
	getTimerSlack = 30
)
