package client

import (
	"context"

	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/lasting"
)

// startLasting starts a daemon that outlives this process, and returns a client of it.
func (o Options) startLasting(ctx context.Context) (c *api.Client, err error) {
	args := []string{"--until-idle", lasting.Linger.String(), "--socket", o.Socket}
	if o.State != "" {
		args = append(args, "--state", o.State)
	}
	err = lasting.Start(ctx, o.Socket, o.Jaild, args, func(ctx context.Context) (err error) {
		c, err = api.Dial(ctx, o.Socket)
		return err
	})
	return c, err
}
