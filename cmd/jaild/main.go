// Command jaild is the daemon: the only process with privileges, and the only writer of the audit
// log. With --private it serves the one client that started it and ends with it.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/gitreader"
	"github.com/jail-sandbox/jail/jail/probe"
	"github.com/jail-sandbox/jail/jail/rootless"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/daemonlog"
	"github.com/jail-sandbox/jail/supervisor/fetch"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/service"
)

func main() { os.Exit(run(context.Background(), os.Args[1:], os.Stderr)) }

const help = `jaild runs tools that nobody trusts, each in a jail of its own, for the users of this host.

usage: jaild [--socket PATH] [--state DIR] [--config FILE] [--delegated] [--until-idle TIME]

  --socket PATH  where to listen (default /run/jail/jail.sock, or $JAIL_SOCKET); a socket that a service manager passes comes first
  --state DIR    keep state, audit log and socket below DIR (default /var/lib/jail and /var/log/jail, or $JAIL_STATE)
  --config FILE  settings of the daemon (default /etc/jail/jaild.toml, or jaild.toml below --state); jaild(8) has its keys
  --until-idle TIME  end when there has been no run, no session and no request for so long; jail starts such a one for a session where none answers
  --delegated    put the jails into the control group that a service manager leaves to this service (Delegate=yes), not into /jail

An ordinary user's jaild has its places below $XDG_STATE_HOME, $XDG_CONFIG_HOME and $XDG_RUNTIME_DIR, and serves that user.

SIGHUP takes up policies and settings that changed. SIGUSR2 lets the installed program take over the socket, while this one carries
its runs to their end. SIGTERM ends the runs, puts that on record and ends.

example: jaild --state /srv/jail
`

func run(ctx context.Context, args []string, stderr io.Writer) int {
	if len(args) == 1 && args[0] == fetch.Arg {
		return fetch.Main(stderr)
	}
	if len(args) == 1 && args[0] == gitreader.Arg {
		return gitreader.Main(stderr)
	}
	if len(args) > 1 && args[0] == detachArg {
		return detach(args[1:])
	}
	flags := flag.NewFlagSet("jaild", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	socket := flags.String("socket", "", "")
	state := flags.String("state", "", "")
	settings := flags.String("config", "", "")
	private := flags.Bool("private", false, "")
	untilIdle := flags.Duration("until-idle", 0, "")
	delegated := flags.Bool("delegated", false, "")
	scoped := flags.Bool(strings.TrimLeft(scopedArg, "-"), false, "")
	probed := flags.Bool(strings.TrimLeft(probeArg, "-"), false, "")
	successorOf := flags.Int("successor", 0, "")
	if err := problem.Flags(flags, args); errors.Is(err, flag.ErrHelp) {
		fmt.Print(help)
		return 0
	} else if err != nil {
		return report(stderr, *private, err)
	}
	exe, err := os.Executable()
	if err != nil {
		return report(stderr, *private, err)
	}
	config := config.Default(exe, os.Getenv)
	if os.Geteuid() != 0 && os.Getenv("JAIL_STATE") == "" {
		config = config.ForUser(os.Getenv)
	}
	if *state != "" {
		config = config.Below(*state)
	}
	if path := cmp.Or(*socket, os.Getenv("JAIL_SOCKET")); path != "" {
		config.Socket = path
	}
	if *settings != "" {
		if config.Settings, err = filepath.Abs(*settings); err != nil {
			return report(stderr, *private, err)
		}
		// The default need not exist; a file that somebody names must.
		if _, err := os.Stat(config.Settings); errors.Is(err, fs.ErrNotExist) {
			return report(stderr, *private, problem.New(problem.NotFound,
				"--config %s: no such file", *settings))
		}
	}
	config.Private = *private
	// The standard error of a private daemon carries only the error with which it ended.
	if !config.Private {
		config.Log = daemonlog.New(stderr, os.Getenv("JOURNAL_STREAM") == "")
	}
	if rootless.Needed() {
		code, err := asUser(config, exe, args, *delegated, *scoped)
		if err != nil {
			return report(stderr, *private, err)
		}
		return code
	}
	if *probed {
		return probeInside(config, os.Stdout)
	}
	if rootless.Inside() {
		*delegated = true
	}
	d := &jaild{args: withoutSuccessor(args), config: config, delegated: *delegated,
		untilIdle: *untilIdle, stderr: stderr}
	if *successorOf > 0 {
		d.before, d.sockets, err = inherit(*successorOf)
	} else {
		d.sockets, err = takePassed()
	}
	if err == nil {
		err = serve(ctx, d)
	}
	if err != nil {
		return report(stderr, *private, err)
	}
	return 0
}

// successorFlag is passed only by a daemon that starts its successor.
const successorFlag = "--successor="

func withoutSuccessor(args []string) []string {
	return slices.DeleteFunc(slices.Clone(args), func(a string) bool {
		return strings.HasPrefix(a, successorFlag)
	})
}

// makeSlice makes the control group above all jails. If delegated is true, it is below the group
// that a service manager delegated, and config.Slice is set.
func makeSlice(config *config.Config, delegated bool) error {
	var c cgroup.Ceiling
	if delegated {
		slice, err := cgroup.Delegated()
		if err != nil {
			return err
		}
		config.Slice, c.Weight = slice, cgroup.BesideDaemon
	}
	return cgroup.MakeSlice(config.Slice, c)
}

// report prints why there is no daemon, as JSON for the client of a private daemon, and returns the
// exit code.
func report(stderr io.Writer, private bool, err error) int {
	e := problem.From(err)
	if private {
		// An error cannot be reported elsewhere.
		_ = json.NewEncoder(stderr).Encode(api.Problem{Error: e})
		return e.Exit()
	}
	fmt.Fprintln(stderr, "jaild: error:", e.Message)
	if e.Hint != "" {
		fmt.Fprintln(stderr, "jaild: hint:", e.Hint)
	}
	return e.Exit()
}

func serve(ctx context.Context, d *jaild) error {
	config := d.config
	if rootless.Inside() {
		if err := rootless.Settle(); err != nil {
			return noNamespaces(err)
		}
	}
	// SIGTERM too: a private daemon has its own session and gets no signals from a terminal.
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	// Before clients can connect, since a client may send a signal as soon as it can.
	d.signals = make(chan os.Signal, 4)
	signal.Notify(d.signals, syscall.SIGHUP, syscall.SIGUSR2)
	if err := makeSlice(&config, d.delegated); err != nil && rootless.Inside() {
		return noDelegation(err)
	} else if err != nil {
		if e := problem.Missing(probe.Cgroups(config.Slice), err); e != nil {
			return e
		}
		return problem.New(problem.Layer, "%w", err).
			WithHint("jail doctor says what this host can enforce")
	}
	if err := d.settle(&config); err != nil {
		return err
	}
	listener, err := listen(config, d.sockets)
	if err != nil {
		return problem.New(problem.Failed, "%w", err).
			WithHint("end what is there, or name another place with --socket")
	}
	defer listener.Close()
	if unix, ok := listener.(*net.UnixListener); ok && d.sockets.api == nil {
		d.sockets.api, d.sockets.own = unix, true
	}
	d.config = config
	// A start is completed even if a signal comes meanwhile, so that it is fully recorded.
	s, err := service.New(context.WithoutCancel(ctx), config)
	if err != nil {
		return err
	}
	if err := d.before.takeOver(&d.sockets); err != nil {
		return errors.Join(err, s.Close(err.Error(), syscall.SIGKILL))
	}
	if d.before != nil {
		fmt.Fprintf(d.stderr, "jaild: upgrade: jaild %s (process %d) has taken over from %v\n",
			config.Version, os.Getpid(), d.before)
	}
	d.s, d.server = s, api.NewServer(s, api.Version{Version: config.Version, API: api.Number,
		State: config.StateDir, Log: config.LogDir}, config.Log)
	return d.run(ctx, listener)
}
