// Package foreign waits for processes of the host that are not children of this one.
package foreign

import (
	"errors"
	"os"
	"syscall"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// A Name identifies a process for good, unlike its PID, which the kernel reuses.
type Name struct {
	PID int `json:"pid"`
	// Start is the start time of the process in clock ticks since boot.
	Start uint64 `json:"start"`
	// Boot is the boot id of the host's kernel.
	Boot string `json:"boot"`
}

// NameOf returns the name of the process pid. A process that is gone is an error.
func NameOf(pid int) (Name, error) {
	_, start, err := sys.ProcStat(pid)
	if err != nil {
		return Name{}, err
	}
	boot, err := sys.BootID()
	return Name{pid, start, boot}, err
}

// A Process is an open pidfd of a process that lived when Open was called.
type Process struct{ pidfd *os.File }

var errGone = errors.New("the process has ended")

// Open opens the process n. The error is errGone if it has ended.
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
	// Known is false if the kernel reported the status to the parent only.
	Known bool
	// Code is the exit code, or 128 plus the number of the signal.
	Code   int
	Signal string
	// Limit is for the caller's use.
	Limit string
}

// AwaitExit waits until the process has exited. It does not wait until its parent has reaped it.
func (p *Process) AwaitExit() error { return sys.AwaitExit(p.pidfd) }

// Wait waits until the process has ended and its parent has reaped it, and returns how it ended.
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

// Kill sends SIGKILL. It returns nil if the process has ended. If it is a container's first
// process, the kernel kills the others too.
func (p *Process) Kill() error {
	err := sys.Signal(p.pidfd, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// Close closes the pidfd and leaves the process alone.
func (p *Process) Close() error { return p.pidfd.Close() }
