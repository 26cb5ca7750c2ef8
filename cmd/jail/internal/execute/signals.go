package execute

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/jail-sandbox/jail/supervisor/api"
)

// and the number of the signal
const exitSignal = 128

// forwarded are the signals that end a run. SIGTSTP, SIGCONT and SIGPIPE act on this process as on
// any other: while it is stopped, the run goes on until its output fills the buffers.
var forwarded = map[syscall.Signal]string{
	syscall.SIGINT: "SIGINT", syscall.SIGTERM: "SIGTERM", syscall.SIGHUP: "SIGHUP",
	syscall.SIGQUIT: "SIGQUIT",
}

// forwardSignals ends the run with the first signal that this process gets. A second signal, or one
// that comes before the run exists, closes the connection, which ends the run too. The function
// that it returns stops the forwarding and returns the signal, 0 where there was none.
func forwardSignals(ctx context.Context, cancel context.CancelFunc, c *api.Client,
	id string) func() syscall.Signal {
	signals := make(chan os.Signal, 2)
	for s := range forwarded {
		// nohup, and shells for jobs in the background, mean it
		if !signal.Ignored(s) {
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
