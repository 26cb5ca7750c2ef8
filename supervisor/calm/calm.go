// Package calm lets a daemon that is busy for moments at a time use less processor time.
//
// While anything happens in a Go program, a thread of its runtime sleeps for 20 µs again and again, to
// look after the others. The kernel wakes the thread up to 50 µs later than asked for, the default of
// the timer slack (PR_SET_TIMERSLACK, prctl(2)). In a program that works for a few milliseconds at a
// time this takes a third of its processor time. With more slack the thread sleeps longer, and so does
// every other timer of the program, by at most that.
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

// Self executes the program anew with more slack: the runtime's thread has the slack that the first
// thread has at its start. It returns if the program has the slack already, or cannot have it, which
// only costs processor time.
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
	// Since Linux 6.13 a thread of a real-time policy has none: it would execute itself for ever.
	if now, err := get(); err != nil || now != slack {
		return
	}
	// Where that fails the program goes on as it is.
	_ = syscall.Exec(self, os.Args, os.Environ())
}

// Start starts cmd with the default slack, whatever this program has.
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
