package launch

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// ErrEnded says that a jail's first process has ended already.
var ErrEnded = errors.New("the jail's first process has ended")

// StartTime returns when the jail's first process started, in clock ticks since the host did. With PID it names the process for good. That the
// number still is that process's is known by its parent, the shim, whose own number is taken until Release.
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

// open takes hold of the jail's first process, so that a signal to it can reach no other that has its number later.
func (p *Process) open() error {
	process, err := sys.OpenProcess(p.PID)
	if errors.Is(err, syscall.ESRCH) {
		return nil // its end is told
	}
	if err != nil {
		return err
	}
	if _, err := p.StartTime(); err != nil { // whose number it was is known now
		return process.Close()
	}
	p.process = process
	return nil
}
