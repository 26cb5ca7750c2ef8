// Command jail-agentd manages the agents of one user: their inboxes, alarms and channels. It is an
// ordinary process of its user and runs agents as a client of jaild, so that an agent never has
// more rights than its owner.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"

	"github.com/jail-sandbox/jail/jail/tick"
	"github.com/jail-sandbox/jail/supervisor/agents"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
	"github.com/jail-sandbox/jail/supervisor/agents/hosted"
	"github.com/jail-sandbox/jail/supervisor/agents/jailed"
	"github.com/jail-sandbox/jail/supervisor/agents/server"
	"github.com/jail-sandbox/jail/supervisor/agents/store"
	"github.com/jail-sandbox/jail/supervisor/calm"
	"github.com/jail-sandbox/jail/supervisor/client"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/gatekeepers"
	"github.com/jail-sandbox/jail/supervisor/models"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

const name = "jail-agentd"

const help = `jail-agentd keeps the agents of its user, wakes them in jails and lets them sleep.

usage: jail-agentd [--socket PATH] [--state DIR] [--listen ADDRESS] [--until-idle TIME]

  --socket PATH      where to listen (default agentd.sock beside the socket of jaild); a socket that a service manager passes comes first
  --state DIR        keep everything below DIR, as $JAIL_STATE says
  --listen ADDRESS   listen on the loopback, too, such as 127.0.0.1:8790; clients name the token in the file token of the state directory
  --until-idle TIME  end when for so long no agent was awake, no alarm was set and no client asked; jail agent starts such a one where none answers

SIGTERM lets the agents that are awake sleep, and ends.

example: jail-agentd --listen 127.0.0.1:8790
`

func main() {
	if len(os.Args) == 2 && os.Args[1] == hosted.Argument {
		os.Exit(hosted.Main())
	}
	calm.Self()
	os.Exit(run(context.Background(), os.Args[1:], os.Stderr))
}

// options are the flags of the command.
type options struct {
	socket, state, listen string
	untilIdle             time.Duration
}

func run(ctx context.Context, args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	var o options
	flags.StringVar(&o.socket, "socket", "", "")
	flags.StringVar(&o.state, "state", os.Getenv("JAIL_STATE"), "")
	flags.StringVar(&o.listen, "listen", "", "")
	flags.DurationVar(&o.untilIdle, "until-idle", 0, "")
	err := problem.Flags(flags, args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Print(help)
		return 0
	}
	if err == nil {
		err = serve(ctx, o, stderr)
	}
	if err != nil {
		e := problem.From(err)
		fmt.Fprintf(stderr, "%s: error: %s\n", name, e.Message)
		if e.Hint != "" {
			fmt.Fprintf(stderr, "%s: hint: %s\n", name, e.Hint)
		}
		return e.Exit()
	}
	return 0
}

func serve(ctx context.Context, o options, stderr io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	places := agentapi.PlacesOf(func(key string) string {
		if key == "JAIL_STATE" {
			return o.state
		}
		return os.Getenv(key)
	})
	if o.socket != "" {
		places.Socket = o.socket
	}
	if err := os.MkdirAll(places.State, 0o700); err != nil {
		return problem.New(problem.Failed, "state directory: %w", err)
	}
	unlock, err := lock(places)
	if err != nil {
		return err
	}
	defer unlock()
	log := slog.New(slog.NewTextHandler(stderr, nil))
	a, closeAll, err := open(places, o, log)
	if err != nil {
		return err
	}
	defer closeAll()
	// End serving before the agents: a client that waits for them must not delay their end.
	serving, end := context.WithCancel(ctx)
	defer func() {
		end()
		a.Close()
	}()
	if err := a.Watch(); err != nil {
		return problem.New(problem.Failed, "folder of agents: %w", err)
	}
	s := server.New(serving, a, log)
	l, activated, err := listen(places.Socket)
	if err != nil {
		return err
	}
	listeners := map[net.Listener]http.Handler{l: s}
	if o.listen != "" {
		token, err := server.Token(filepath.Join(places.State, "token"))
		if err != nil {
			return problem.New(problem.Failed, "token: %w", err)
		}
		l, err := server.Listen(o.listen)
		if err != nil {
			return err
		}
		listeners[l] = s.Guarded(l.Addr().String(), token)
		log.Info("listening", "address", l.Addr().String(),
			"token", filepath.Join(places.State, "token"))
	}
	if o.untilIdle > 0 && !activated {
		go whenIdle(serving, a, s, o.untilIdle, stop)
	}
	return answer(ctx, listeners, log)
}

// open opens the database and starts to wake agents. The caller closes the agents and then calls
// closeAll, which closes the database and the audit log.
func open(places agentapi.Places, o options, log *slog.Logger) (a *agents.Agents, closeAll func(),
	err error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	s, err := store.Open(filepath.Join(places.State, "agentd.db"), owner(), time.Now)
	if err != nil {
		return nil, nil, problem.New(problem.Failed, "%w", err)
	}
	j := jailed.New(client.Options{State: o.state, Jaild: config.Jaild(exe)})
	records := j.Record(log)
	closeAll = func() {
		records.Close()
		if err := s.Close(); err != nil {
			log.Error("the database was not closed", "error", err)
		}
	}
	gates := gatekeepers.New(gatekeepers.Options{Queue: j.Actions,
		Entries: store.GatesOf(s), Now: time.Now, Log: log,
		Kept: func() ([]gatekeepers.Kept, error) {
			return gatekeepers.Load(places.Gatekeepers, j.Sender(), func(ctx context.Context, name, key,
				method string, args any) (json.RawMessage, error) {
				// The desk calls this only after a is set.
				return agents.AskGatekeeper(ctx, a, name, key, method, args)
			})
		}})
	a, err = agents.New(agents.Options{Store: s, Jails: &hosted.Jails{Jails: j, Program: exe},
		Models: models.Jail{Sender: j.Sender()}, Queue: j.Queue(), Gates: gates, RunOf: j.RunOf,
		Record: records.Add, Folder: places.Folder, State: filepath.Join(places.State, "state"),
		Host: os.Geteuid() == 0, Now: time.Now, Log: log})
	if err != nil {
		closeAll()
		return nil, nil, err
	}
	return a, closeAll, nil
}

// owner returns the name of the agents' user, or the uid if the user has no name.
func owner() string {
	uid := strconv.Itoa(os.Geteuid())
	if u, err := user.LookupId(uid); err == nil {
		return u.Username
	}
	return uid
}

// endBound is how long to wait for the end of another jail-agentd that has stopped serving.
const endBound = 15 * time.Second

// lock locks the state directory. It waits for a jail-agentd that is about to end, and returns an
// error if another one is serving.
func lock(p agentapi.Places) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(p.State, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, problem.New(problem.Failed, "state directory: %w", err)
	}
	for last := time.Now().Add(endBound); ; time.Sleep(10 * time.Millisecond) {
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			return func() { f.Close() }, nil
		}
		conn, err := net.Dial("unix", p.Socket)
		if err == nil {
			conn.Close()
		}
		if err == nil || time.Now().After(last) {
			f.Close()
			return nil, problem.New(problem.Failed, "state directory %s: another jail-agentd uses it",
				p.State).WithHint("jail agent list asks that one")
		}
	}
}

// listen returns the socket that a service manager passes, with activated true, or else a new
// socket at path to which only its owner can connect.
func listen(path string) (l net.Listener, activated bool, err error) {
	passed, err := activation.Listeners()
	if err != nil {
		return nil, false, err
	}
	if len(passed) == 1 && passed[0] != nil {
		return passed[0], true, nil
	}
	if len(passed) > 1 {
		return nil, false, problem.New(problem.Usage, "%d sockets were passed, want one", len(passed))
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, false, problem.New(problem.Failed, "socket: %w", err)
	}
	// With the lock held, no other jail-agentd of this state directory listens there.
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
		if conn, err := net.Dial("unix", path); err == nil {
			conn.Close()
			return nil, false, problem.New(problem.Failed, "socket %s: somebody listens there", path).
				WithHint("end that, or name another place with --socket")
		}
		if err := os.Remove(path); err != nil {
			return nil, false, problem.New(problem.Failed, "socket: %w", err)
		}
	}
	// Set the mode at creation, so that others can never connect.
	old := syscall.Umask(0o177)
	l, err = net.Listen("unix", path)
	syscall.Umask(old)
	if err != nil {
		return nil, false, problem.New(problem.Failed, "socket %s: %w", path, err)
	}
	return l, false, nil
}

// answer serves HTTP on the listeners until ctx is done.
func answer(ctx context.Context, listeners map[net.Listener]http.Handler, log *slog.Logger) error {
	ended := make(chan error, len(listeners))
	var servers []*http.Server
	for l, h := range listeners {
		s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second,
			IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
			ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
		servers = append(servers, s)
		go func() { ended <- s.Serve(l) }()
	}
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	for _, s := range servers {
		if e := s.Shutdown(last); e != nil {
			e = s.Close()
			err = errors.Join(err, e)
		}
	}
	return err
}

// whenIdle calls end after the agents and the server were idle for the time after.
func whenIdle(ctx context.Context, a *agents.Agents, s *server.Server, after time.Duration,
	end func()) {
	busy := time.Now()
	for range tick.Each(ctx.Done(), min(after, time.Second)) {
		used, quiet := s.IdleSince()
		idle, err := a.Idle(ctx)
		if err != nil || !idle || !quiet {
			busy = time.Now()
			continue
		}
		if time.Since(busy) >= after && time.Since(used) >= after {
			end()
			return
		}
	}
}
