package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/jail-sandbox/jail/jail/asuser"
)

// ListenUnix listens on a new socket at path that only its owner may connect to. It replaces a
// socket on which nobody listens; anything else at path is an error.
func ListenUnix(path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != fs.ModeSocket {
			return nil, fmt.Errorf("%s exists, and is no socket", path)
		}
		conn, err := net.Dial("unix", path)
		if err == nil {
			conn.Close()
			return nil, fmt.Errorf("%s: somebody listens there already", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	// It is made in a directory that no other user can enter, so that others cannot connect even
	// before the chmod.
	dir, err := os.MkdirTemp(filepath.Dir(path), ".jail-console-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(filepath.Join(dir, "s"), 0o600),
		os.Rename(filepath.Join(dir, "s"), path)); err != nil {
		l.Close()
		return nil, err
	}
	return &ownSocket{l, path}, nil
}

// ownSocket accepts connections only of the listening user and root, by peer credentials.
type ownSocket struct {
	*net.UnixListener
	path string
}

func (l *ownSocket) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		peer, err := asuser.PeerOf(conn)
		if err == nil && (peer.UID == 0 || int(peer.UID) == os.Geteuid()) {
			return conn, nil
		}
		conn.Close()
	}
}

func (l *ownSocket) Close() error { return errors.Join(l.UnixListener.Close(), os.Remove(l.path)) }

// lastAnswers bounds the time for the answers under way when the console ends.
const lastAnswers = 2 * time.Second

// Serve serves the console on l until ctx ends.
func (c *Console) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{
		Handler:           c,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		// Errors of clients do not belong on the user's terminal.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastAnswers)
	defer cancel()
	if err := srv.Shutdown(last); err != nil {
		return srv.Close()
	}
	return nil
}
