// Package client runs tools in jails from a Go program: it is what the jail command itself is made of.
//
//	c, err := client.Connect(ctx, client.Options{})
//	if err != nil {
//		return err // no daemon, and none could be started
//	}
//	defer c.Close()
//	res, err := c.Command("grep", "-rn", "TODO", ".").Run(ctx)
//	switch {
//	case err != nil: // the sandbox failed, or refused: an *Error with what to do about it; the tool did not come to its end
//	case res.ExitCode != 0: // the tool failed, by itself or at res.Limit; res.Denied says what it was refused
//	}
//
// What a tool changed is in a shadow until Commit makes it real: Changes shows it, Discard throws it away, Revert takes a commit back.
package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"

	"github.com/jail-sandbox/jail/supervisor"
	"github.com/jail-sandbox/jail/supervisor/api"
)

// What the methods of a Client take and return.
type (
	// A Request says what to run. Every part of it can only narrow what the ceiling and the profile grant.
	Request = supervisor.Request
	// A Result is how a run ended.
	Result = supervisor.Result
	// An Error is a failure or a refusal of jail's own, never of a tool.
	Error = supervisor.Error
	// A Fate says what becomes of the shadow when a run has ended.
	Fate = supervisor.Fate
)

// Fates of a shadow. Without one it is kept if something changed.
const (
	Keep    = supervisor.FateKeep
	Discard = supervisor.FateDiscard
	Commit  = supervisor.FateCommit // if the tool exits with 0
)

// Options say where jail is. The zero value is right for an installed jail.
type Options struct {
	// Socket is the daemon's. Empty: $JAIL_SOCKET, else jail.sock in $JAIL_STATE, else /run/jail/jail.sock.
	Socket string
	// Jaild is the daemon's program, for a private one where no daemon answers. Empty: the one in $PATH.
	Jaild string
	// State is the directory of a private daemon's state and log. Empty: $JAIL_STATE, else those of the system.
	State string
}

// A Client asks one daemon. It may be used from several goroutines at once.
type Client struct {
	*api.Client
}

// Connect returns a client of the daemon that answers on the socket. Where there is none, root gets a private one, which ends with Close.
// Its errors are of the type *Error.
func Connect(ctx context.Context, o Options) (*Client, error) {
	o = o.complete()
	c, err := api.Dial(ctx, o.Socket)
	switch {
	case err == nil:
		return &Client{c}, nil
	case errors.Is(err, fs.ErrPermission):
		return nil, &Error{Code: supervisor.CodeRefused, Message: fmt.Sprintf("socket %s: permission denied", o.Socket),
			Hint: "members of the group jail may connect, and root", Err: err}
	case !nobodyListens(err):
		return nil, failed(err, "JAIL_SOCKET names the daemon's socket", "socket %s: %v", o.Socket, cause(err))
	case os.Geteuid() != 0:
		return nil, failed(err, "start jaild as a service, or use sudo",
			"no daemon answers on %s, and only root can start jails without one", o.Socket)
	}
	var args []string
	if o.State != "" {
		args = []string{"--state", o.State}
	}
	if c, err = api.StartPrivate(o.Jaild, args...); err != nil {
		return nil, failed(err, "build or install jaild beside jail", "no daemon answers on %s, and %s cannot be started: %v", o.Socket, o.Jaild, cause(err))
	}
	return &Client{c}, nil
}

// complete fills in what the environment says.
func (o Options) complete() Options {
	if o.State == "" {
		o.State = os.Getenv("JAIL_STATE")
	}
	if o.Jaild == "" {
		o.Jaild = "jaild"
		if path, err := exec.LookPath(o.Jaild); err == nil {
			o.Jaild = path
		}
	}
	if o.Socket == "" {
		o.Socket = supervisor.Default(o.Jaild, func(name string) string {
			if name == "JAIL_STATE" {
				return o.State
			}
			return os.Getenv(name)
		}).Socket
	}
	return o
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

func failed(err error, hint, format string, args ...any) *Error {
	return &Error{Code: supervisor.CodeFailed, Message: fmt.Sprintf(format, args...), Hint: hint, Err: err}
}

// cause strips what an error says of operation and path, where the sentence around it says them better.
func cause(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}
