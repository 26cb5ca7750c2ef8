package sys

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// A fsContext is a file system that is being made or changed (fsopen(2), fspick(2)).
type fsContext struct {
	fd int
	// The kind of file system, and what it is of or goes to: errors name both.
	kind, name string
}

func openContext(kind, name string) (fsContext, error) {
	fd, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	c := fsContext{fd, kind, name}
	return c, c.failed("fsopen", err)
}

// pickContext returns that of a file system that is mounted.
func pickContext(dir int, path, name string, flags int) (fsContext, error) {
	fd, err := unix.Fspick(dir, path, unix.FSPICK_CLOEXEC|flags)
	c := fsContext{fd, name, name}
	return c, c.failed("fspick", err)
}

func (c fsContext) close() { unix.Close(c.fd) }

func (c fsContext) failed(call string, err error) error {
	if c.kind != c.name {
		call += " " + c.kind
	}
	return pathError(call, c.name, err)
}

// newMount returns a detached mount of a fresh file system.
func newMount(kind, name string, attributes int, options ...string) (*os.File, error) {
	c, err := openContext(kind, name)
	if err != nil {
		return nil, err
	}
	return c.made(attributes, options...)
}

// made is the mount of the context's new file system. It closes the context.
func (c fsContext) made(attributes int, options ...string) (*os.File, error) {
	defer c.close()
	if err := c.set(options...); err != nil {
		return nil, err
	}
	if err := c.create(); err != nil {
		return nil, err
	}
	return c.mount(attributes)
}

// set sets options: flags, or KEY=VALUE (fsconfig(2)).
func (c fsContext) set(options ...string) error {
	for _, o := range options {
		key, value, ok := strings.Cut(o, "=")
		var err error
		if ok {
			err = unix.FsconfigSetString(c.fd, key, value)
		} else {
			err = unix.FsconfigSetFlag(c.fd, key)
		}
		if err != nil {
			return c.failed("fsconfig "+o, err)
		}
	}
	return nil
}

func (c fsContext) create() error { return c.failed("fsconfig create", unix.FsconfigCreate(c.fd)) }

// reconfigure sets options of a file system that is there.
func (c fsContext) reconfigure(options ...string) error {
	if err := c.set(options...); err != nil {
		return err
	}
	return c.failed("fsconfig reconfigure", unix.FsconfigReconfigure(c.fd))
}

// mount returns a detached mount of the file system (fsmount(2)).
func (c fsContext) mount(attributes int) (*os.File, error) {
	fd, err := unix.Fsmount(c.fd, unix.FSMOUNT_CLOEXEC, attributes)
	if err != nil {
		return nil, c.failed("fsmount", err)
	}
	return os.NewFile(uintptr(fd), c.name), nil
}
