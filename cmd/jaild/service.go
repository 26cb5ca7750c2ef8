package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/jail-sandbox/jail/jail/tick"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/service"
)

// A jaild is a running daemon.
type jaild struct {
	// The program's arguments, for its successor.
	args    []string
	config  config.Config
	before  *predecessor
	sockets passed // what a successor gets
	s       *service.Service
	server  *api.Server
	stderr  io.Writer

	listener net.Listener
	// SIGHUP and SIGUSR2, received from the start on.
	signals   chan os.Signal
	delegated bool
	untilIdle time.Duration // 0: never
}

// settle reads the operator's settings into the configuration c, and listens on the port for
// metrics if there is one.
func (d *jaild) settle(c *config.Config) error {
	settings, err := config.ReadSettings(c.Settings)
	if err == nil {
		c.Bounds, err = settings.Bounds()
		c.Refusals = settings.Denied.Landlock
	}
	if err != nil || c.Private || settings.Metrics == "" || d.sockets.metrics != nil {
		return err
	}
	if d.sockets.metrics, err = net.Listen("tcp", settings.Metrics); err != nil {
		return problem.New(problem.Failed, "metrics: %w", err).
			WithHint("name another port in " + c.Settings)
	}
	return nil
}

// run serves until the daemon gets a signal to end, its client is gone, it is idle for too long, or
// another daemon has taken over and the last run has ended.
func (d *jaild) run(ctx context.Context, listener net.Listener) error {
	d.listener = listener
	served := make(chan error, 1)
	go func() { served <- d.server.Serve(listener) }()
	if d.sockets.metrics != nil {
		defer d.sockets.metrics.Close()
		go func() {
			d.config.Log.Check("answer for metrics", d.server.ServeMetrics(d.sockets.metrics))
		}()
	}
	ready("runs tools for clients of " + listener.Addr().String())
	idle := d.idle(ctx)
	stop := d.watch(ctx, listener)
	defer stop()
	for {
		select {
		case err := <-served:
			if errors.Is(err, net.ErrClosed) {
				err = nil
			}
			return d.end(err, "its client is gone", syscall.SIGKILL)
		case <-ctx.Done():
			return d.end(nil, "it was told to end", syscall.SIGTERM)
		case <-idle:
			return d.end(nil, "nothing was left to do", syscall.SIGTERM)
		case sig := <-d.signals:
			if sig == syscall.SIGHUP {
				d.reload()
				continue
			}
			next, err := d.succeed(ctx)
			if err != nil {
				d.complain("upgrade: %v", err)
				ready("an upgrade did not come about: this jaild goes on")
				continue
			}
			stop()
			return d.drain(ctx, next)
		}
	}
}

// idle returns a channel that is closed when the daemon has been idle for untilIdle, or nil if it
// never ends by itself.
func (d *jaild) idle(ctx context.Context) <-chan struct{} {
	if d.untilIdle <= 0 {
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			left := d.untilIdle - d.server.Quiet()
			if left <= 0 || !tick.Wait(ctx.Done(), left) {
				return
			}
		}
	}()
	return done
}

// watch keeps the manager's watchdog informed by requests that the daemon answers, until stop is
// called.
func (d *jaild) watch(ctx context.Context, listener net.Listener) (stop func()) {
	ctx, stop = context.WithCancel(ctx)
	limit := watchdog()
	if path := listener.Addr().String(); limit > 0 && !d.config.Private {
		go keepAlive(ctx, limit, func(ctx context.Context) error {
			c, err := api.Dial(ctx, path)
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Version(ctx)
			return err
		})
	}
	return stop
}

func (d *jaild) reload() {
	notify(daemon.SdNotifyReloading)
	if err := d.s.Policies().Reload(); err != nil {
		d.complain("reload: %v", err)
		ready("a reload failed, and changed nothing: " + err.Error())
		return
	}
	ready("reloaded")
}

func (d *jaild) complain(format string, args ...any) {
	fmt.Fprintf(d.stderr, "jaild: error: "+format+"\n", args...)
}

// succeed starts the installed program as the successor, which takes over the socket.
func (d *jaild) succeed(ctx context.Context) (*successor, error) {
	if d.config.Private {
		return nil, errors.New("a private daemon has no successor")
	}
	ctx, cancel := context.WithTimeout(ctx, startBound)
	defer cancel()
	next, err := succeed(ctx, d.config.Exe, d.args, d.sockets, d.s.Active)
	if err == nil {
		// The socket's file belongs to the successor now.
		d.sockets.api.SetUnlinkOnClose(false)
	}
	return next, err
}

// startBound is how long a successor may take to open state and log, including recovery.
const startBound = time.Minute

// drain accepts no more clients and waits for the runs to end. If the successor asks, it ends them.
func (d *jaild) drain(ctx context.Context, next *successor) error {
	forgetManager()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-next.told:
			cancel()
		case <-ctx.Done():
		}
	}()
	go d.part(ctx)
	err := errors.Join(d.server.Shutdown(ctx), d.s.Idle(ctx))
	if errors.Is(err, context.Canceled) {
		// d.end ends the remaining runs.
		err = nil
	}
	return d.end(err, "another jaild has taken over", syscall.SIGTERM)
}

// patience is how long clients may still read output after the last run of a daemon with a
// successor has ended.
const patience = 30 * time.Second

// part waits until no run is left, and after patience drops clients that do not read.
func (d *jaild) part(ctx context.Context) {
	for d.s.Idle(ctx) == nil {
		if !tick.Wait(ctx.Done(), patience) {
			return
		}
		// Nor has a run begun meanwhile that was requested before.
		if d.s.Active() == 0 {
			d.server.Hurry()
			return
		}
	}
}

// end ends all runs, which records their ends, closes the server and returns err with further
// errors. reason is told to the manager and to the runs.
func (d *jaild) end(err error, reason string, how syscall.Signal) error {
	notify(daemon.SdNotifyStopping, "STATUS="+reason)
	// New clients wait for the next daemon, if a service manager holds the socket.
	d.listener.Close()
	d.server.Hurry()
	err = errors.Join(err, d.s.Close(reason, how))
	// The answers under way are the results of runs that Close has ended.
	last, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	// Clients that do not read until then see the end of the connection.
	if sent := d.server.Shutdown(last); !errors.Is(sent, context.DeadlineExceeded) {
		err = errors.Join(err, sent)
	}
	d.before.end()
	return err
}
