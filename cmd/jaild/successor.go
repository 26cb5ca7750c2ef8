package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/supervisor/config"
)

// An upgrade starts the installed program as a second daemon on the same state directory, and the
// old daemon stays until its runs have ended. On SIGUSR2:
//
//	old daemon                                         new daemon: jaild --successor …
//	starts it, with the socket             ──────►     opens state and log, listens on the same socket
//	tells the service manager its pid      ◄──────     {"ready":true,"pid":…}
//	takes no more clients                  ──────►     {"own":…,"pid":…}: it answers, and tells the service manager that it is ready
//	waits for its runs to end                          serves new clients
//	ends                                   ──────►     reads end of file
//	ends its runs at once                  ◄──────     {"end":true}: it is itself told to end
//
// If the new daemon fails to start, the old one continues.

// Descriptors of a successor.
const (
	successorControl = 3
	successorSocket  = 4
	// Only if there is a port for metrics.
	successorMetrics = 5
)

// succession is a message between a daemon and its successor.
type succession struct {
	Ready bool `json:"ready,omitempty"`
	PID   int  `json:"pid,omitempty"` // of the sender
	End   bool `json:"end,omitempty"`
	// The socket's file was made by a daemon, and the last one removes it.
	Own bool `json:"own,omitempty"`

	// The sender's version; releases before 0.8 do not send it.
	Version string `json:"version,omitempty"`
	// The number of runs and sessions that the sender still has.
	Runs int `json:"runs,omitempty"`
}

// A successor is the daemon that took over.
type successor struct {
	conn *control.Conn
	// closed when it asks this daemon to end
	told chan struct{}
}

// succeed starts the program exe with args and the sockets, and returns when it has taken over.
// runs returns how many runs this daemon has by then.
func succeed(ctx context.Context, exe string, args []string, sockets passed,
	runs func() int) (*successor, error) {
	conn, theirs, err := control.Pair("succession")
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	files := []*os.File{theirs}
	defer func() { control.CloseAll(files[1:]) }()
	socket, err := sockets.api.File()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	files = append(files, socket)
	if l, ok := sockets.metrics.(*net.TCPListener); ok {
		port, err := l.File()
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		files = append(files, port)
	}
	cmd := command(exe,
		append([]string{detachArg, successorFlag + strconv.Itoa(len(files)-1)}, args...), files)
	if err := cmd.Run(); err != nil {
		return nil, errors.Join(fmt.Errorf("start of %s: %w", exe, err), conn.Close())
	}
	theirs.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	var said succession
	if _, err := conn.Receive(&said); err != nil || !said.Ready {
		return nil, errors.Join(fmt.Errorf("the new jaild did not come up: %w", err), conn.Close())
	}
	notify(fmt.Sprintf("MAINPID=%d", said.PID), "STATUS=another jaild has taken over")
	s := &successor{conn: conn, told: make(chan struct{})}
	if err := conn.Send(succession{Own: sockets.own, PID: os.Getpid(), Version: config.Version,
		Runs: runs()}); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	go func() {
		var said succession
		if _, err := conn.Receive(&said); err == nil && said.End {
			// Otherwise the successor has died, which is no reason to end runs.
			close(s.told)
		}
	}()
	return s, nil
}

// detachArg is the first argument of a process that starts another one and ends, so that the other
// becomes a child of the service manager. The manager would kill a process that is not its child
// when it ends the service, instead of waiting for it.
const detachArg = "detach"

func detach(args []string) int {
	exe, err := os.Executable()
	if err != nil {
		return 1
	}
	var files []*os.File
	for fd := successorControl; fd <= successorMetrics; fd++ {
		files = append(files, os.NewFile(uintptr(fd), "inherited"))
	}
	if len(args) == 0 || args[0] == successorFlag+"1" {
		// Without a port for metrics there are two descriptors.
		files = files[:successorMetrics-successorControl]
	}
	if command(exe, args, files).Start() != nil {
		return 1
	}
	return 0
}

func command(exe string, args []string, files []*os.File) *exec.Cmd {
	cmd := exec.Command(exe, args...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdout, os.Stderr, files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// A predecessor is the daemon that this one takes over from. A nil predecessor means none.
type predecessor struct {
	conn *control.Conn
	pid  int
	// "" if its release does not send it
	version string
	runs    int
}

// inherit takes over the control connection and the sockets of a predecessor. sockets is their
// number.
func inherit(sockets int) (*predecessor, passed, error) {
	var p passed
	conn, err := control.Inherit(successorControl)
	if err != nil {
		return nil, p, err
	}
	names := []string{passedAPI, passedMetrics}[:min(sockets, 2)]
	for i, name := range names {
		f := os.NewFile(uintptr(successorSocket+i), name)
		err := p.take(f)
		f.Close()
		if err != nil {
			return nil, p, errors.Join(err, p.close(), conn.Close())
		}
	}
	return &predecessor{conn: conn}, p, nil
}

// takeOver tells the predecessor that this daemon is ready, and returns when the predecessor has
// stopped accepting clients. p may be nil.
func (p *predecessor) takeOver(sockets *passed) error {
	if p == nil {
		return nil
	}
	var done succession
	err := p.conn.Send(succession{Ready: true, PID: os.Getpid()})
	if err == nil {
		_, err = p.conn.Receive(&done)
	}
	if err != nil {
		return fmt.Errorf("the jaild before this one: %w", err)
	}
	sockets.own, p.pid, p.version, p.runs = done.Own, done.PID, done.Version, done.Runs
	sockets.api.SetUnlinkOnClose(done.Own)
	return nil
}

// String returns the predecessor's version, PID and number of runs.
func (p *predecessor) String() string {
	version := cmp.Or(p.version, "of an older release")
	return fmt.Sprintf(
		"jaild %s (process %d), which still has %d runs and sessions and carries them to their end",
		version, p.pid, p.runs)
}

// end tells the predecessor to end its runs, and waits until its process has ended. p may be nil.
func (p *predecessor) end() {
	if p == nil {
		return
	}
	if p.conn.Send(succession{End: true}) == nil {
		var nothing struct{}
		_, _ = p.conn.Receive(&nothing)
	}
	// A service manager would kill the predecessor when this process has ended, and report a
	// failure.
	for wait := time.Millisecond; wait < time.Second && syscall.Kill(p.pid, 0) == nil; wait *= 2 {
		time.Sleep(wait)
	}
	p.conn.Close()
}
