// Package foreign waits for processes of the host that are children of others.
package foreign

import (
	"errors"
	"os"
	"syscall"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// A Name names a process for good: numbers are used again.
type Name struct {
	PID int `json:"pid"`
	// Start is when it started, in clock ticks since the host did.
	Start uint64 `json:"start"`
	// Boot is the host's own start.
	Boot string `json:"boot"`
}

// NameOf names a process that lives.
func NameOf(pid int) (Name, error) {
	_, start, err := sys.ProcStat(pid)
	if err != nil {
		return Name{}, err
	}
	boot, err := sys.BootID()
	return Name{pid, start, boot}, err
}

// A Process is one that lives, or has ended since Open.
type Process struct{ pidfd *os.File }

var errGone = errors.New("the process has ended")

// Open returns the process of that name, or errGone.
func Open(n Name) (*Process, error) {
	pidfd, err := sys.OpenProcess(n.PID)
	if errors.Is(err, syscall.ESRCH) {
		return nil, errGone
	}
	if err != nil {
		return nil, err
	}
	now, err := NameOf(n.PID)
	if err == nil && now != n || errors.Is(err, os.ErrNotExist) {
		err = errGone
	}
	if err != nil {
		pidfd.Close()
		return nil, err
	}
	return &Process{pidfd}, nil
}

// An End is how a process ended.
type End struct {
	// Known is false where the kernel tells nobody but the parent.
	Known bool
	// Code is the exit code, of a signal 128 and its number.
	Code   int
	Signal string
	// Limit is for the caller's use.
	Limit string
}

// AwaitExit waits until the process has exited. Its parent may not have asked for the status yet.
func (p *Process) AwaitExit() error { return sys.AwaitExit(p.pidfd) }

// Wait waits for the end of the process.
func (p *Process) Wait() (End, error) {
	status, known, err := sys.WaitForeign(p.pidfd)
	if err != nil || !known {
		return End{}, err
	}
	if status.Signaled() {
		return End{Known: true, Code: 128 + int(status.Signal()),
			Signal: sys.SignalName(status.Signal())}, nil
	}
	return End{Known: true, Code: status.ExitStatus()}, nil
}

// Kill ends the process. The end of the first process of a container is that of all.
func (p *Process) Kill() error {
	err := sys.Signal(p.pidfd, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// Close gives the process up.
func (p *Process) Close() error { return p.pidfd.Close() }
