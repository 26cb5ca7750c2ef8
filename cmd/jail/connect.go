package main

import (
	"context"
	"errors"
	"syscall"

	"github.com/jail-sandbox/jail/supervisor"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/client"
)

// withDaemon calls f with a client of the daemon: the one that answers on the socket, else a private one, which ends before withDaemon returns.
func (a *app) withDaemon(ctx context.Context, f func(c *api.Client) error) error {
	c, err := client.Connect(ctx, client.Options{Socket: a.config.Socket, Jaild: supervisor.Jaild(a.exe), State: a.getenv("JAIL_STATE")})
	if err != nil {
		return err
	}
	err = f(c.Client)
	if closeErr := c.Close(); closeErr != nil && err == nil {
		return failed(closeErr, supervisor.AsError(closeErr).Hint, "the private jaild did not end well: %v", closeErr)
	}
	return err
}

// cause strips what an error says of operation and path, where the sentence around it says them better.
func cause(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}
