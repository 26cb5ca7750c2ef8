package launch

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// ErrEnded is returned for a jail whose first process has already ended.
var ErrEnded = errors.New("the jail's first process has ended")

// StartTime returns the start time of the jail's first process, in clock ticks since boot (field 22
// of proc_pid_stat(5)). PID and start time identify the process for good. The shim is its parent
// and reaps it, and the shim's own PID is not reused before Release, so the PID still belongs to
// that process.
func (p *Process) StartTime() (uint64, error) {
	parent, start, err := sys.ProcStat(p.PID)
	if err != nil {
		return 0, fmt.Errorf("%w (%w)", ErrEnded, err)
	}
	if parent != p.cmd.Process.Pid {
		return 0, ErrEnded
	}
	return start, nil
}

// open opens a pidfd of the jail's first process, so that signals cannot reach a later process with
// the same PID.
func (p *Process) open() error {
	process, err := sys.OpenProcess(p.PID)
	if errors.Is(err, syscall.ESRCH) {
		// The shim reports its end.
		return nil
	}
	if err != nil {
		return err
	}
	// StartTime verifies that the PID still belongs to the process.
	if _, err := p.StartTime(); err != nil {
		return process.Close()
	}
	p.process = process
	return nil
}
