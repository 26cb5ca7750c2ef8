package cli

import (
	"context"
	"fmt"

	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/client"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// WithDaemon calls f with a client of the daemon that answers on the socket. Where none answers, it
// starts a private daemon, which ends before WithDaemon returns.
func (env *Env) WithDaemon(ctx context.Context, f func(c *api.Client) error) error {
	return env.connect(ctx, client.Options{}, f)
}

// WithLastingDaemon is WithDaemon for runs and sessions that outlive the command: a daemon that it
// starts lasts as long as they do.
func (env *Env) WithLastingDaemon(ctx context.Context, f func(c *api.Client) error) error {
	return env.connect(ctx, client.Options{Lasting: true}, f)
}

func (env *Env) connect(ctx context.Context, o client.Options, f func(c *api.Client) error) error {
	o.Socket, o.Jaild, o.State = env.Config.Socket, config.Jaild(env.Exe), env.Getenv("JAIL_STATE")
	c, err := client.Connect(ctx, o)
	if err != nil {
		return err
	}
	if c.Started {
		fmt.Fprintln(env.Stderr,
			"jail: no daemon answered, so one was started; it ends when nothing is left for it to "+
				"do")
	}
	err = f(c.Client)
	if closeErr := c.Close(); closeErr != nil && err == nil {
		return exit.Failed(closeErr, problem.From(closeErr).Hint,
			"the private jaild did not end well: %v", closeErr)
	}
	return err
}
