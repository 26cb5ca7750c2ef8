package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
)

// firstPassed is the first descriptor that a service manager passes (sd_listen_fds(3)).
const firstPassed = 3

// Names of passed sockets: FileDescriptorName= of jaild.socket.
const (
	passedAPI     = "api"
	passedMetrics = "metrics"
)

// passed are sockets that were made before: those that a service manager listens on for the daemon, so that clients can wait while no daemon runs,
// or those of the daemon before.
type passed struct {
	api     *net.UnixListener
	own     bool // the daemon's own, whose file goes with it
	metrics net.Listener
}

// takePassed takes over the sockets that are meant for this process, and what the environment says of them. A socket that it does not know the
// use of is an error: somebody would wait there for ever.
func takePassed() (p passed, err error) {
	pid, count, names := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS"), os.Getenv("LISTEN_FDNAMES")
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		os.Unsetenv(name)
	}
	if pid != strconv.Itoa(os.Getpid()) || count == "" {
		return p, nil
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 0 || n > 16 {
		return p, fmt.Errorf("LISTEN_FDS is %q", count)
	}
	called := strings.Split(names, ":")
	for i := range n {
		name := ""
		if i < len(called) {
			name = called[i]
		}
		if err := p.take(firstPassed+i, name); err != nil {
			return p, errors.Join(err, p.close())
		}
	}
	return p, nil
}

func (p *passed) take(fd int, name string) error {
	f := os.NewFile(uintptr(fd), name)
	defer f.Close() // FileListener has a descriptor of its own
	l, err := net.FileListener(f)
	if err != nil {
		return fmt.Errorf("socket %q, passed as descriptor %d: %w", name, fd, err)
	}
	unix, isUnix := l.(*net.UnixListener)
	switch {
	case name == passedMetrics && !isUnix && p.metrics == nil:
		p.metrics = l
	case name != passedMetrics && isUnix && p.api == nil:
		p.api = unix
	default:
		return errors.Join(fmt.Errorf("socket %q on %s, passed as descriptor %d: want one Unix socket, named %s, and at most one other, named %s",
			name, l.Addr(), fd, passedAPI, passedMetrics), l.Close())
	}
	return nil
}

func (p *passed) close() error {
	var err error
	if p.api != nil {
		err = p.api.Close()
	}
	if p.metrics != nil {
		err = errors.Join(err, p.metrics.Close())
	}
	return err
}
