package main

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/seccomp"
	"github.com/jail-sandbox/jail/jail/seccomp/libseccomp"
)

// refusals counts the system calls that the inner filter of this shim's jail refused.
type refusals struct {
	listener atomic.Pointer[libseccomp.Listener]
	// silent is set when a filter without a listener is in force.
	silent atomic.Bool
	// settled is closed when the filter is in force, or will never be.
	settled chan struct{}
}

func newRefusals() *refusals { return &refusals{settled: make(chan struct{})} }

// listen receives the notifier of the inner filter and answers with it until the jail has ended.
// A silent filter has none: its message says only that it is in force.
func (r *refusals) listen(from *control.Conn, f seccomp.Filter, silent bool) error {
	settle := sync.OnceFunc(func() { close(r.settled) })
	defer settle()
	files, err := from.Receive(&control.Listener{})
	if errors.Is(err, io.EOF) {
		// jail-init failed before it loaded the filter, and reports why itself.
		return nil
	}
	if err != nil {
		return err
	}
	if silent && len(files) == 0 {
		r.silent.Store(true)
		return nil
	}
	if len(files) != 1 || silent {
		control.CloseAll(files)
		return fmt.Errorf("%d descriptors came as the listener", len(files))
	}
	defer files[0].Close()
	l, err := libseccomp.NewListener(files[0], f)
	if err != nil {
		return err
	}
	r.listener.Store(l)
	settle()
	return l.Serve()
}

// begun reports whether jail-init has restricted itself: it sends the notifier with its last
// restriction.
func (r *refusals) begun() bool { return r.listener.Load() != nil || r.silent.Load() }

// list returns the refused calls. Each call is counted before it is answered, so the list is
// complete when the jail has ended.
func (r *refusals) list() []control.Refused {
	if l := r.listener.Load(); l != nil {
		return l.Refused()
	}
	return nil
}
