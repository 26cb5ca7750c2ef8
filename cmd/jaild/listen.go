package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/config"
)

// group is whose members may connect, where the host has it; else only root.
const group = "jail"

// listen returns where clients come in: a passed socket, whose place and rights are the service
// manager's, else one of its own.
func listen(config config.Config, from passed) (net.Listener, error) {
	if config.Private {
		return api.ListenPrivate()
	}
	if from.api != nil {
		return from.api, nil
	}
	dir := filepath.Dir(config.Socket)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := clearStale(config.Socket); err != nil {
		return nil, err
	}
	// There is no moment at which others may connect.
	old := syscall.Umask(0o177)
	l, err := net.Listen("unix", config.Socket)
	syscall.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", config.Socket, err)
	}
	if err := admit(config.Socket); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// clearStale removes a socket on which nobody listens any more, and nothing else.
func clearStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != os.ModeSocket ||
		info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
		return fmt.Errorf("socket %s: something else is there, which is not mine to remove", path)
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		conn.Close()
		return fmt.Errorf("socket %s: another daemon listens there", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("socket %s: %w", path, err)
	}
	return os.Remove(path)
}

func admit(path string) error {
	if os.Geteuid() != 0 {
		// A user's socket is the user's alone.
		return nil
	}
	g, err := user.LookupGroup(group)
	if err != nil {
		// No such group: the socket stays root's.
		return nil
	}
	gid, err := strconv.Atoi(g.Gid)
	if err != nil {
		return fmt.Errorf("group %s: id %q", group, g.Gid)
	}
	return errors.Join(os.Chown(path, 0, gid), os.Chmod(path, 0o660))
}
