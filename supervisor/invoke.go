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
	if r.job.Holds > 0 {
		return nil
	}
	if r.warm.jail != nil {
		r.warm.alone()
	}
	order := r.job.Order()
	order.Prepared = r.job.Script == nil && r.warm.jail.Loaded(r.job.Tool.Sum)
	err := proc.Invoke(order, append(r.job.Modules(), r.proxy.Load().Door()...)...)
	if err == nil && r.job.In == nil && !r.job.Compile {
		r.s.meters.Begin.Observe(time.Since(r.job.Begun))
	}
	if err == nil || r.Ended() != nil || errors.Is(err, syscall.EPIPE) {
		// where jail-init has ended already, its end says why
		return nil
	}
	return problem.New(problem.Failed, "hand over to jail-init: %w", err)
}
