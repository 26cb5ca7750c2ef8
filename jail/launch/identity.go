package launch

import (
	"errors"
	"fmt"

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
