package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/coreos/go-systemd/v22/activation"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/config"
)

// group is whose members may connect, where the host has it; else only root.
const group = "jail"

// listen returns where clients come in: a passed socket, whose place and rights are the service
// manager's, else one of its own.
func listen(config config.Config, from passed) (net.Listener, error) {
	if config.Private {
		return api.ListenPrivate()
	}
	if from.api != nil {
		return from.api, nil
	}
	dir := filepath.Dir(config.Socket)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := clearStale(config.Socket); err != nil {
		return nil, err
	}
	// There is no moment at which others may connect.
	old := syscall.Umask(0o177)
	l, err := net.Listen("unix", config.Socket)
	syscall.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", config.Socket, err)
	}
	if err := admit(config.Socket); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// clearStale removes a socket on which nobody listens any more, and nothing else.
func clearStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != os.ModeSocket ||
		info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
		return fmt.Errorf("socket %s: something else is there, which is not mine to remove", path)
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		conn.Close()
		return fmt.Errorf("socket %s: another daemon listens there", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("socket %s: %w", path, err)
	}
	return os.Remove(path)
}

func admit(path string) error {
	if os.Geteuid() != 0 {
		// A user's socket is the user's alone.
		return nil
	}
	g, err := user.LookupGroup(group)
	if err != nil {
		// No such group: the socket stays root's.
		return nil
	}
	gid, err := strconv.Atoi(g.Gid)
	if err != nil {
		return fmt.Errorf("group %s: id %q", group, g.Gid)
	}
	return errors.Join(os.Chown(path, 0, gid), os.Chmod(path, 0o660))
}

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

func (p *passed) close() (err error) {
	if p.api != nil {
		err = p.api.Close()
	}
	if p.metrics != nil {
		err = errors.Join(err, p.metrics.Close())
	}
	return err
}
