package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/jail-sandbox/jail/supervisor"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/client"
)

// withDaemon calls f with a client of the daemon: the one that answers on the socket, else a private one, which ends before withDaemon returns.
func (a *app) withDaemon(ctx context.Context, f func(c *api.Client) error) error {
	return a.connected(ctx, client.Options{}, f)
}

// withLastingDaemon is for what outlives the command: where no daemon answers, one is started that lasts as long.
func (a *app) withLastingDaemon(ctx context.Context, f func(c *api.Client) error) error {
	return a.connected(ctx, client.Options{Lasting: true}, f)
}

func (a *app) connected(ctx context.Context, o client.Options, f func(c *api.Client) error) error {
	o.Socket, o.Jaild, o.State = a.config.Socket, supervisor.Jaild(a.exe), a.getenv("JAIL_STATE")
	c, err := client.Connect(ctx, o)
	if err != nil {
		return err
	}
	if c.Started {
		fmt.Fprintln(a.stderr, "jail: no daemon answered, so one was started; it ends when nothing is left for it to do")
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
