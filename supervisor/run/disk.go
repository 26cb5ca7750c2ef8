package run

import (
	"time"

	"github.com/jail-sandbox/jail/jail/tick"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/ending"
)

// diskTick is how often it is asked whether the disk takes what a tool writes to its shadow.
const diskTick = time.Second

// watchDisk ends a run when the disk of its shadow did not take something that the tool wrote,
// since the tool does not learn of it. The run stops the watch when its jail is gone.
func watchDisk(work *workspace.Workspace, end func(ending.Cause)) (stop func()) {
	if work == nil {
		return func() {}
	}
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for range tick.Each(ended, diskTick) {
			if err := work.Check(); err != nil {
				end(ending.Cause{Fault: err})
				return
			}
		}
	}()
	return func() {
		close(ended)
		<-done
	}
}
