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

// group is the Unix group whose members may connect. If the host has no such group, only root may.
const group = "jail"

// listen returns the listener for clients: a private one, the socket that was passed in, or a new
// one at config.Socket.
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
	// With this umask no other user can connect before admit.
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

// clearStale removes a socket of this user on which nobody listens. It returns an error if anything
// else is at path.
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
		// Only the user may connect to a user's socket.
		return nil
	}
	g, err := user.LookupGroup(group)
	if err != nil {
		// Without the group, only root may connect.
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

// passed has the sockets that this process inherited, from a service manager, which lets clients
// wait while no daemon runs, or from the daemon before.
type passed struct {
	api *net.UnixListener
	// The daemon made the API socket, so its file is removed at the end.
	own     bool
	metrics net.Listener
}

// takePassed takes over the sockets that a service manager passes, and clears their environment
// variables (sd_listen_fds(3)). It returns an error for a socket without a use, since clients would
// wait on it for ever.
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

// take adds the socket of which f is a descriptor. The name of f tells its use.
func (p *passed) take(f *os.File) error {
	name, fd := f.Name(), f.Fd()
	// FileListener duplicates the descriptor.
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
