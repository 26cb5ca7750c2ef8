package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/jail-sandbox/jail/supervisor"
	"github.com/jail-sandbox/jail/supervisor/api"
)

// withDaemon calls f with a client of the daemon: the one that answers on the socket, else a private one, which ends before withDaemon returns.
func (a *app) withDaemon(ctx context.Context, f func(c *api.Client) error) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	err = f(c)
	if closeErr := c.Close(); closeErr != nil && err == nil {
		return failed(closeErr, supervisor.AsError(closeErr).Hint, "the private jaild did not end well: %v", closeErr)
	}
	return err
}

func (a *app) connect(ctx context.Context) (*api.Client, error) {
	socket := a.config.Socket
	c, err := api.Dial(ctx, socket)
	switch {
	case err == nil:
		return c, nil
	case errors.Is(err, fs.ErrPermission):
		return nil, &supervisor.Error{Code: supervisor.CodeRefused, Message: fmt.Sprintf("socket %s: permission denied", socket),
			Hint: "members of the group jail may connect, and root", Err: err}
	case !nobodyListens(err):
		return nil, failed(err, "JAIL_SOCKET names the daemon's socket", "socket %s: %v", socket, cause(err))
	case os.Geteuid() != 0:
		return nil, failed(err, "start jaild as a service, or use sudo",
			"no daemon answers on %s, and only root can start jails without one", socket)
	}
	var args []string
	if dir := a.getenv("JAIL_STATE"); dir != "" {
		args = []string{"--state", dir}
	}
	jaild := supervisor.Jaild(a.exe)
	if c, err = api.StartPrivate(jaild, args...); err != nil {
		return nil, failed(err, "build or install jaild beside jail", "no daemon answers on %s, and %s cannot be started: %v", socket, jaild, cause(err))
	}
	return c, nil
}

// nobodyListens reports whether an error of connect(2) says that there is no daemon, and not that there is one out of reach. EINVAL is for a path
// that is too long for a socket, so that no daemon can have it.
func nobodyListens(err error) bool {
	for _, e := range []error{fs.ErrNotExist, syscall.ECONNREFUSED, syscall.ENOTDIR, syscall.EINVAL} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// cause strips what an error says of operation and path, where the sentence around it says them better.
func cause(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}
