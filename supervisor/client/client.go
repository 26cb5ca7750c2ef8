// Package client runs tools in jails from a Go program. The jail command itself uses it.
//
//	c, err := client.Connect(ctx, client.Options{})
//	if err != nil {
//		return err // no daemon, and none could be started
//	}
//	defer c.Close()
//	res, err := c.Command("grep", "-rn", "TODO", ".").Run(ctx)
//	switch {
//	case err != nil:
//		// The sandbox failed, or refused: an *Error with what to do about it. The tool did not complete.
//	case res.ExitCode != 0: // the tool failed, by itself or at res.Limit; res.Denied says what it was refused
//	}
//
// The changes of a tool are in a shadow until Commit writes them to the real directory. Changes
// shows them, Discard deletes them, and Revert undoes a commit.
package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/lasting"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/wire"
)

// Types of the parameters and results of a Client's methods.
type (
	// A Request says what to run. Everything in it can only narrow what the ceiling and the profile
	// permit.
	Request = message.Request
	// A Result is how a run ended.
	Result = message.Result
	// An Error is a failure or a refusal of jail's own, never of a tool.
	Error = problem.Error
	// A Fate says what is done with the shadow when a run has ended.
	Fate = message.Fate
)

// Fates of a shadow. By default it is kept if something changed.
const (
	Keep    = message.FateKeep
	Discard = message.FateDiscard
	// Commit commits if the tool exits with 0.
	Commit = message.FateCommit
)

// Options say where to find jail. The zero value fits an installed jail.
type Options struct {
	// Socket is the path of the daemon's socket. Empty: $JAIL_SOCKET, else jail.sock in
	// $JAIL_STATE, else /run/jail/jail.sock.
	Socket string
	// Jaild is the program of a private daemon, which is started if no daemon answers. Empty: jaild
	// in $PATH.
	Jaild string
	// State is the directory for the state and log of a private daemon. Empty: $JAIL_STATE, else
	// the system's directories.
	State string
	// Lasting starts, if no daemon answers, one that outlives the caller, as sessions and detached
	// runs need it. It ends by itself when it has been idle for a while.
	Lasting bool
}

// A Client sends requests to one daemon. It may be used from several goroutines.
type Client struct {
	*api.Client
	// Started says that no daemon answered, and one was started for Options.Lasting.
	Started bool
	// Private says that no daemon answered, and a private one was started.
	Private bool
}

// Connect returns a client of the daemon on the socket. If none listens there, Connect starts a
// private one, which ends with Close. Its errors are of type *Error.
func Connect(ctx context.Context, o Options) (*Client, error) {
	o = o.complete()
	c, err := api.Dial(ctx, o.Socket)
	switch {
	case err == nil:
		if err := understand(ctx, c, o.Socket); err != nil {
			c.Close()
			return nil, err
		}
		return &Client{Client: c}, nil
	case errors.Is(err, fs.ErrPermission):
		return nil, &Error{Code: problem.Refused,
			Message: fmt.Sprintf("socket %s: permission denied", o.Socket),
			Hint:    MayConnect, Err: err}
	case !NobodyListens(err):
		return nil, failed(err, "JAIL_SOCKET names the daemon's socket", "socket %s: %v", o.Socket,
			problem.Cause(err))
	}
	if o.Lasting {
		if c, err = o.startLasting(ctx); err != nil {
			return nil, err
		}
		return &Client{Client: c, Started: true}, nil
	}
	var args []string
	if o.State != "" {
		args = []string{"--state", o.State}
	}
	if c, err = api.StartPrivate(o.Jaild, args...); err != nil {
		return nil, failed(err, "build or install jaild beside jail",
			"no daemon answers on %s, and %s cannot be started: %v", o.Socket, o.Jaild, problem.Cause(err))
	}
	return &Client{Client: c, Private: true}, nil
}

// MayConnect says what to do for a user who may not connect to root's daemon.
const MayConnect = "members of the group jail may connect, and root: sudo usermod -aG jail NAME, " +
	"then log in anew; " +
	"with JAIL_STATE=DIR a command has a private daemon of this user's"

// answerBound is how long a daemon may take to tell its version.
const answerBound = 30 * time.Second

// understand returns an error if the daemon does not answer in time or speaks another version of
// the API.
func understand(ctx context.Context, c *api.Client, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, answerBound)
	defer cancel()
	v, err := c.Version(ctx)
	// A run uses a new connection.
	c.Rest()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return failed(err, wire.SlowHint,
			"the daemon on %s has not answered for %v", socket, answerBound)
	case err != nil:
		var known *Error
		if !errors.As(err, &known) {
			err = failed(err,
				"JAIL_SOCKET names the daemon's socket; look whether what listens there is jaild",
				"socket %s: %v", socket, err)
		}
		return err
	case v.API != api.Number:
		return failed(nil, "install jail and jaild of one version, and restart the daemon",
			"the daemon on %s is jaild %.40q and speaks API %d; this is jail %s, which speaks API "+
				"%d",
			socket, v.Version, v.API, config.Version, api.Number)
	}
	return nil
}

// complete returns the options with defaults from the environment.
func (o Options) complete() Options {
	o.State = cmp.Or(o.State, os.Getenv("JAIL_STATE"))
	if o.Jaild == "" {
		o.Jaild = "jaild"
		if path, err := exec.LookPath(o.Jaild); err == nil {
			o.Jaild = path
		}
	}
	if o.Socket == "" {
		getenv := func(name string) string {
			if name == "JAIL_STATE" {
				return o.State
			}
			return os.Getenv(name)
		}
		o.Socket = config.Default(o.Jaild, getenv).ForCaller(getenv).Socket
	}
	return o
}

// NobodyListens reports whether an error of connect(2) means that there is no daemon, rather than
// one out of reach. EINVAL means that the path is too long for a socket.
func NobodyListens(err error) bool {
	known := []error{fs.ErrNotExist, syscall.ECONNREFUSED, syscall.ENOTDIR, syscall.EINVAL}
	return slices.ContainsFunc(known, func(e error) bool { return errors.Is(err, e) })
}

func failed(err error, hint, format string, args ...any) *Error {
	return &Error{Code: problem.Failed, Message: fmt.Sprintf(format, args...), Hint: hint, Err: err}
}

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
