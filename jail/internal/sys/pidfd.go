package sys

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// OpenProcess returns a descriptor that stands for the process and for no later one of the same
// number (pidfd_open(2)). It gives no way into it.
func OpenProcess(pid int) (*os.File, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, callError("pidfd_open "+strconv.Itoa(pid), err)
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

// Signal sends a signal to the process behind a descriptor of OpenProcess (pidfd_send_signal(2)).
// One that has ended gets none, though another has its number by now.
func Signal(process *os.File, signal unix.Signal) error {
	conn, err := process.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := conn.Control(func(fd uintptr) {
		sent = unix.PidfdSendSignal(int(fd), signal, nil, 0)
	}); err != nil {
		return err
	}
	return callError("pidfd_send_signal", sent)
}

// HasEnded reports whether the process behind a descriptor of OpenProcess has ended.
func HasEnded(process *os.File) (bool, error) {
	fds := []unix.PollFd{{Fd: int32(process.Fd()), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 0)
		if !errors.Is(err, unix.EINTR) {
			return n == 1, callError("poll", err)
		}
	}
}

// ProcStat returns a process's parent and when it started, in clock ticks since the host did
// (proc_pid_stat(5)). The two numbers of a process and its start name it for good, since process
// numbers are used again.
func ProcStat(pid int) (parent int, start uint64, err error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0, err
	}
	// The name, in parentheses, may hold anything, more of them included.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	const state, ppid, starttime = 3, 4, 22
	if len(fields) <= starttime-state {
		return 0, 0, fmt.Errorf("/proc/%d/stat: %d fields", pid, len(fields))
	}
	parent, err = strconv.Atoi(fields[ppid-state])
	if err != nil {
		return 0, 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	start, err = strconv.ParseUint(fields[starttime-state], 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	return parent, start, nil
}
