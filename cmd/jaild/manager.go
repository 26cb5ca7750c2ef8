package main

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// notify sends assignments such as READY=1 to the service manager (sd_notify(3)). It does nothing
// without a manager. $NOTIFY_SOCKET stays set for a successor; other child processes get an
// environment of their own.
func notify(lines ...string) {
	// A manager that does not get the message acts on its own time limits.
	_, _ = daemon.SdNotify(false, strings.Join(lines, "\n"))
}

// ready tells the manager that the daemon serves, or serves again.
func ready(status string) { notify(daemon.SdNotifyReady, "STATUS="+status) }

// forgetManager disables notify, because the manager listens to the successor now.
func forgetManager() { os.Unsetenv("NOTIFY_SOCKET") }

// watchdog returns the manager's watchdog time limit, or 0 for none. $WATCHDOG_PID is ignored,
// since it names neither a successor nor the process inside a user's namespace.
func watchdog() time.Duration {
	os.Unsetenv("WATCHDOG_PID")
	limit, err := daemon.SdWatchdogEnabled(false)
	if err != nil || os.Getenv("NOTIFY_SOCKET") == "" {
		return 0
	}
	return limit
}

// keepAlive sends a watchdog message three times per limit while alive returns nil, until ctx ends.
// alive makes a request as a client would, within a third of limit.
func keepAlive(ctx context.Context, limit time.Duration, alive func(ctx context.Context) error) {
	tick := time.NewTicker(limit / 3)
	defer tick.Stop()
	for {
		asked, cancel := context.WithTimeout(ctx, limit/3)
		if alive(asked) == nil {
			notify(daemon.SdNotifyWatchdog)
		}
		cancel()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
