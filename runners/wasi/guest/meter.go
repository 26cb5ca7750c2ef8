package guest

import (
	"context"
	"os"
	"sync/atomic"
	"time"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/internal/sys"
)

// RunMetered is Run on a thread that the goroutine is locked to. It measures the CPU time of the
// thread and, unless limit is 0, stops the module when the thread has used limit nanoseconds more.
func (l *Loaded) RunMetered(ctx context.Context, inv runners.Invocation, limit int64, stdin, stdout,
	stderr *os.File) (runners.Report, error) {
	thread := sys.ThisThread()
	begun, err := thread.CPUTime()
	if err != nil {
		return runners.Report{}, err
	}
	var over atomic.Bool
	if limit > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithCancel(ctx)
		defer stop()
		defer watchCPU(thread, begun+time.Duration(limit), func() {
			over.Store(true)
			stop()
		})()
	}
	rep, err := l.Run(ctx, inv, stdin, stdout, stderr)
	if now, clockErr := thread.CPUTime(); clockErr == nil {
		rep.Usage.CPUNanos = int64(now - begun)
	}
	if rep.Stopped != "" && over.Load() {
		rep.Stopped = runners.StoppedCPUTime
	}
	return rep, err
}

// cpuTick is how late a breach of the limit of CPU time may be seen at the least.
const cpuTick = 10 * time.Millisecond

// watchCPU calls over once the thread's CPU time has reached until, which one thread reaches no
// sooner than the clock does. stop ends the watch.
func watchCPU(thread sys.Thread, until time.Duration, over func()) (stop func()) {
	done := make(chan struct{})
	go func() {
		for {
			used, err := thread.CPUTime()
			if err != nil || used >= until {
				over()
				return
			}
			timer := time.NewTimer(max(until-used, cpuTick))
			select {
			case <-timer.C:
			case <-done:
				timer.Stop()
				return
			}
		}
	}()
	return func() { close(done) }
}
