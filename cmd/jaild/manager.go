package main

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// notify sends assignments such as READY=1 to the service manager that started the daemon
// (sd_notify(3)). Without a manager it does nothing. $NOTIFY_SOCKET stays in the environment for a
// successor; everything else that the daemon starts gets an environment of its own.
func notify(lines ...string) {
	// A manager that does not get the message acts on its own time limits.
	_, _ = daemon.SdNotify(false, strings.Join(lines, "\n"))
}

// ready says that the daemon serves, or serves again.
func ready(status string) { notify(daemon.SdNotifyReady, "STATUS="+status) }

// forgetManager makes every later notify do nothing: the manager listens to the successor now.
func forgetManager() { os.Unsetenv("NOTIFY_SOCKET") }

// watchdog returns how long the manager lets the daemon be silent, or 0. $WATCHDOG_PID is ignored:
// it names the first process of the service, and neither a successor nor the process inside a
// user's namespace is that one.
func watchdog() time.Duration {
	os.Unsetenv("WATCHDOG_PID")
	limit, err := daemon.SdWatchdogEnabled(false)
	if err != nil || os.Getenv("NOTIFY_SOCKET") == "" {
		return 0
	}
	return limit
}

// keepAlive tells the manager three times per limit that the daemon lives, for as long as alive
// returns nil. alive asks the daemon what a client would ask, and gets a third of limit for it.
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
