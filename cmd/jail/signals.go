package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/jail-sandbox/jail/supervisor/api"
)

const exitSignal = 128 // and the number of the signal

// forwarded are the signals that end a run. Those that stop and continue a job, and a broken pipe, act on the client as on any program:
// the run goes on beneath a stopped client until it has no room left to write to.
var forwarded = map[syscall.Signal]string{
	syscall.SIGINT: "SIGINT", syscall.SIGTERM: "SIGTERM", syscall.SIGHUP: "SIGHUP", syscall.SIGQUIT: "SIGQUIT",
}

// forwardSignals ends the run with the first signal that comes. The second one, or a first that comes before there is a run to end,
// closes the connection, which ends everything. The function that it returns stops this and says which signal came, if one did.
func (a *app) forwardSignals(ctx context.Context, cancel context.CancelFunc, c *api.Client, id string) func() syscall.Signal {
	signals := make(chan os.Signal, 2)
	for s := range forwarded {
		if !signal.Ignored(s) { // nohup, and shells for jobs in the background, mean it
			signal.Notify(signals, s)
		}
	}
	var first syscall.Signal
	done := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case s := <-signals:
			first = s.(syscall.Signal)
		case <-done:
			return
		}
		waiting.Go(func() {
			if err := c.Kill(ctx, id, int(first)); err != nil {
				cancel()
			}
		})
		select {
		case <-signals:
			cancel()
		case <-done:
		}
	})
	return func() syscall.Signal {
		signal.Stop(signals)
		close(done)
		cancel()
		waiting.Wait()
		return first
	}
}
