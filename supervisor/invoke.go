package supervisor

import (
	"errors"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// invoke hands the tool over to jail-init. The jail that holds a session open has none, and waits.
func (r *run) invoke(proc *launch.Process) error {
	if r.job.hold != nil {
		return nil
	}
	if r.warm.jail != nil {
		r.warm.alone()
	}
	order := r.job.order()
	order.Prepared = r.job.script == nil && r.warm.jail.Loaded(r.job.tool.sum)
	err := proc.Invoke(order, append(r.job.modules(), r.door()...)...)
	if err == nil && r.job.in == nil && !r.job.compile {
		r.s.meters.begin.Observe(time.Since(r.job.begun))
	}
	if err == nil || r.ended() != nil || errors.Is(err, syscall.EPIPE) {
		// where jail-init has ended already, its end says why
		return nil
	}
	return problem.New(problem.Failed, "hand over to jail-init: %w", err)
}
