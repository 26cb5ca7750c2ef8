package hosted

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/runners/agent/host"
	"github.com/jail-sandbox/jail/supervisor/agents"
)

// maxStreams is how many connections the program may have at a time.
const maxStreams = 16

// fd is the file descriptor of the listener in the program.
const fd = 3

// native runs the program of an agent of the host's folder and serves its calls as HTTP. The
// program accepts connections on the listener fd. native returns the program's exit code.
func native(h *host.Host, l agents.Launch, wake agent.Wake) (code int, err error) {
	s, err := newStreams(l.State)
	if err != nil {
		return 1, err
	}
	defer s.Close()
	server := &http.Server{Handler: h, ConnState: s.changed}
	// The server runs until the streams are closed.
	go func() { _ = server.Serve(s) }()
	name := l.Manifest.Native[0]
	if local := filepath.Join(l.Dir, name); filepath.IsLocal(name) {
		if _, err := os.Lstat(local); err == nil {
			name = local
		}
	}
	cmd := exec.Command(name, l.Manifest.Native[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = l.Dir, os.Stderr, os.Stderr
	cmd.ExtraFiles = []*os.File{s.listener}
	config := string(wake.Config)
	if config == "" {
		config = "{}"
	}
	cmd.Env = append(os.Environ(), "AGENT_ID="+wake.AgentID, "CHANNEL="+wake.Channel,
		"HANDLE="+wake.Handle, "CONFIG="+config,
		"AGENT_BINDINGS="+strings.Join(l.Manifest.Bindings(), ","),
		fmt.Sprintf("JAIL_AGENT_FD=%d", fd))
	err = cmd.Run()
	if exited, ok := errors.AsType[*exec.ExitError](err); ok {
		return max(exited.ExitCode(), 1), nil
	}
	return 0, err
}

// streams is a net.Listener for the server: Accept connects to the program's listener. Each
// connection waits there until the program accepts it.
type streams struct {
	listener *os.File
	path     string
	// free is a semaphore with a token for each connection that may be made.
	free   chan struct{}
	closed chan struct{}
	// closeRoot closes the directory of the socket.
	closeRoot func() error
}

// newStreams creates the listener in dir, which only the agent's user can access.
func newStreams(dir string) (*streams, error) {
	root, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	s := &streams{path: fmt.Sprintf("/proc/self/fd/%d/agent.sock", root.Fd()),
		free: make(chan struct{}, maxStreams), closed: make(chan struct{})}
	for range maxStreams {
		s.free <- struct{}{}
	}
	// Remove the socket of an earlier run.
	if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	l.SetUnlinkOnClose(false)
	if s.listener, err = l.File(); err != nil {
		return nil, err
	}
	// The path contains the descriptor of the directory, which must stay open.
	s.closeRoot = root.Close
	return s, nil
}

// Accept makes a new connection to the program's listener, when one is free.
func (s *streams) Accept() (net.Conn, error) {
	select {
	case <-s.free:
		return net.Dial("unix", s.path)
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

// changed frees a connection that has ended.
func (s *streams) changed(_ net.Conn, state http.ConnState) {
	if state == http.StateClosed {
		s.free <- struct{}{}
	}
}

// Close closes the listener and ends Accept.
func (s *streams) Close() error {
	close(s.closed)
	return errors.Join(s.listener.Close(), s.closeRoot())
}

// Addr returns an empty address, for net.Listener.
func (s *streams) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }
