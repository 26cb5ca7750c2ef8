package main

import (
	"context"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// A manager is the service manager that started the daemon and wants to know how it is (sd_notify(3)). Without one, telling it is nothing.
type manager struct {
	socket   string        // $NOTIFY_SOCKET
	watchdog time.Duration // how long the daemon may be silent, or 0
}

// takeManager reads what the environment says of a manager, and takes it out: what the daemon starts must not speak for it.
func takeManager() manager {
	m := manager{socket: os.Getenv("NOTIFY_SOCKET")}
	usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if err == nil && usec > 0 {
		m.watchdog = time.Duration(usec) * time.Microsecond
	}
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		os.Unsetenv(name)
	}
	return m
}

// environ is what a successor must find to be served by the same manager.
func (m manager) environ() []string {
	if m.socket == "" {
		return nil
	}
	return []string{"NOTIFY_SOCKET=" + m.socket, "WATCHDOG_USEC=" + strconv.FormatInt(m.watchdog.Microseconds(), 10)}
}

// tell sends assignments, such as READY=1. A manager that cannot be told will find out by its own time limits.
func (m manager) tell(lines ...string) {
	if m.socket == "" {
		return
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: m.socket, Net: "unixgram"})
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = conn.Write([]byte(strings.Join(lines, "\n")))
}

func (m manager) ready(status string) { m.tell("READY=1", "STATUS="+status) }

// reloading says that a reload begins, and returns what says that it is over, with how it went.
func (m manager) reloading() (done func(status string)) {
	m.tell("RELOADING=1")
	return m.ready
}

// keepAlive tells the manager that the daemon lives for as long as alive says so, which asks the daemon what a client would, and has a deadline.
func (m manager) keepAlive(ctx context.Context, alive func(ctx context.Context) error) {
	if m.socket == "" || m.watchdog == 0 {
		return
	}
	tick := time.NewTicker(m.watchdog / 3)
	defer tick.Stop()
	for {
		asked, cancel := context.WithTimeout(ctx, m.watchdog/3)
		if alive(asked) == nil {
			m.tell("WATCHDOG=1")
		}
		cancel()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
