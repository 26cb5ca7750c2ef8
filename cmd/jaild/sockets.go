package main

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/coreos/go-systemd/v22/activation"

	"github.com/jail-sandbox/jail/jail/control"
)

// Names of passed sockets: FileDescriptorName= of jaild.socket.
const (
	passedAPI     = "api"
	passedMetrics = "metrics"
)

// passed are sockets that were made before: those that a service manager listens on for the daemon,
// so that clients can wait while no daemon runs, or those of the daemon before.
type passed struct {
	api *net.UnixListener
	// The daemon's own, whose file goes with it.
	own     bool
	metrics net.Listener
}

// takePassed takes over the sockets that a service manager passes to this process, and removes what
// the environment says of them (sd_listen_fds(3)). A socket that has no use here is an error:
// clients would wait on it for ever.
func takePassed() (p passed, err error) {
	files := activation.Files(true)
	defer func() { control.CloseAll(files) }()
	for _, f := range files {
		if err := p.take(f); err != nil {
			return p, errors.Join(err, p.close())
		}
	}
	return p, nil
}

// take adds the socket that f is a descriptor of. Its use is its name.
func (p *passed) take(f *os.File) error {
	name, fd := f.Name(), f.Fd()
	// FileListener makes a descriptor of its own.
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
		return errors.Join(
			fmt.Errorf("socket %q on %s, passed as descriptor %d: want one Unix socket, named %s, "+
				"and at most one other, named %s",
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
