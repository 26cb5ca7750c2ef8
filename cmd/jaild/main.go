// Command jaild is the daemon: the only process with privileges, and the only writer of the audit log. With --private it serves the one client that
// started it and ends with it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/probe"
	"github.com/jail-sandbox/jail/supervisor"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/fetch"
)

func main() { os.Exit(run(context.Background(), os.Args[1:], os.Stderr)) }

const help = `jaild runs tools that nobody trusts, each in a jail of its own, for the users of this host.

usage: jaild [--socket PATH] [--state DIR]

  --socket PATH  where to listen (default /run/jail/jail.sock, or $JAIL_SOCKET)
  --state DIR    keep state, audit log and socket below DIR (default /var/lib/jail and /var/log/jail, or $JAIL_STATE)

example: jaild --state /srv/jail
`

func run(ctx context.Context, args []string, stderr io.Writer) int {
	if len(args) == 1 && args[0] == fetch.Arg {
		return fetch.Main(stderr)
	}
	flags := flag.NewFlagSet("jaild", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, help) }
	socket := flags.String("socket", "", "")
	state := flags.String("state", "", "")
	private := flags.Bool("private", false, "")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil || flags.NArg() > 0 {
		return supervisor.ExitUsage
	}
	exe, err := os.Executable()
	if err != nil {
		return report(stderr, *private, err)
	}
	config := supervisor.Default(exe, os.Getenv)
	if *state != "" {
		config = config.Below(*state)
	}
	if *socket != "" {
		config.Socket = *socket
	}
	config.Private = *private
	if err := serve(ctx, config); err != nil {
		return report(stderr, *private, err)
	}
	return 0
}

// report tells a person, or the client of a private daemon, why there is no daemon.
func report(stderr io.Writer, private bool, err error) int {
	e := supervisor.AsError(err)
	if private {
		_ = json.NewEncoder(stderr).Encode(api.Problem{Error: e}) // there is nobody else to tell
		return e.Exit()
	}
	fmt.Fprintln(stderr, "jaild: error:", e.Message)
	if e.Hint != "" {
		fmt.Fprintln(stderr, "jaild: hint:", e.Hint)
	}
	return e.Exit()
}

func serve(ctx context.Context, config supervisor.Config) error {
	if os.Geteuid() != 0 {
		return &supervisor.Error{Code: supervisor.CodeFailed, Message: "only root can start jails", Hint: "start jaild as a service, or use sudo"}
	}
	// Not os.Interrupt alone: a private daemon has a session of its own and gets none from a terminal.
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := cgroup.MakeSlice(config.Slice, cgroup.Ceiling{}); err != nil {
		if e := supervisor.Missing(probe.Cgroups(), err); e != nil {
			return e
		}
		return &supervisor.Error{Code: supervisor.CodeLayer, Message: err.Error(), Hint: "jail doctor says what this host can enforce", Err: err}
	}
	listener, err := listen(config)
	if err != nil {
		return &supervisor.Error{Code: supervisor.CodeFailed, Message: err.Error(), Hint: "end what is there, or name another place with --socket", Err: err}
	}
	defer listener.Close()
	// A start is carried through also when it is told to end meanwhile: the record of it is whole.
	s, err := supervisor.New(context.WithoutCancel(ctx), config)
	if err != nil {
		return err
	}
	server := api.NewServer(s, api.Version{Version: config.Version, API: 1, State: config.StateDir, Log: config.LogDir})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	reason, how := "its client is gone", syscall.SIGKILL
	select {
	case err = <-served:
		if errors.Is(err, net.ErrClosed) {
			err = nil
		}
	case <-ctx.Done():
		reason, how = "it was told to end", syscall.SIGTERM
	}
	server.Hurry()
	err = errors.Join(err, s.Close(reason, how))
	// What is still being answered are the ends of runs, which Close has brought about.
	last, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(err, server.Shutdown(last))
}
