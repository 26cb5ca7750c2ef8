package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/client"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// WithDaemon calls f with a client of the daemon on the socket. If none answers, it starts a
// private daemon, which ends before WithDaemon returns.
func (env *Env) WithDaemon(ctx context.Context, f func(c *api.Client) error) error {
	return env.connect(ctx, client.Options{}, f)
}

// WithLastingDaemon is WithDaemon for runs and sessions that outlive the command: a daemon that it
// starts lasts as long as they do.
func (env *Env) WithLastingDaemon(ctx context.Context, f func(c *api.Client) error) error {
	return env.connect(ctx, client.Options{Lasting: true}, f)
}

// WithSessionDaemon is WithDaemon for an invocation of session id. If no daemon answers and the
// session sleeps, it starts a daemon that wakes the session and lasts as long as it.
func (env *Env) WithSessionDaemon(ctx context.Context, id string,
	f func(c *api.Client) error) error {
	sleeps := false
	err := env.reach(ctx, client.Options{}, func(c *client.Client) error {
		if c.Private && id != "" {
			// A private daemon also knows the sleeping sessions.
			all, err := c.Sessions(ctx)
			sleeps = err == nil && slices.ContainsFunc(all, func(s message.SessionInfo) bool {
				return (s.ID == id || s.GlobalID == id) && s.State == message.SessionSleeping
			})
		}
		if sleeps {
			return nil
		}
		return f(c.Client)
	})
	if sleeps && err == nil {
		return env.WithLastingDaemon(ctx, f)
	}
	return err
}

// FindLog sets the log directory to that of the daemon on JAIL_SOCKET, if that daemon answers. With
// JAIL_STATE the directory is known already.
func (env *Env) FindLog(ctx context.Context) {
	if env.Getenv("JAIL_SOCKET") == "" || env.Getenv("JAIL_STATE") != "" {
		return
	}
	c, err := api.Dial(ctx, env.Config.Socket)
	if err != nil {
		return
	}
	defer c.Close()
	if v, err := c.Version(ctx); err == nil && filepath.IsAbs(v.Log) {
		env.Config.LogDir = v.Log
	}
}

func (env *Env) connect(ctx context.Context, o client.Options, f func(c *api.Client) error) error {
	return env.reach(ctx, o, func(c *client.Client) error { return f(c.Client) })
}

func (env *Env) reach(ctx context.Context, o client.Options, f func(c *client.Client) error) error {
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
	err = f(c)
	if closeErr := c.Close(); closeErr != nil && err == nil {
		return exit.Failed(closeErr, problem.From(closeErr).Hint,
			"the private jaild did not end well: %v", closeErr)
	}
	return err
}
