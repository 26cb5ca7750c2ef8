package main

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/seccomp"
)

// refusals are what the inner filter of this shim's jail refused. Its zero value is ready.
type refusals struct {
	listener atomic.Pointer[seccomp.Listener]
}

// listen waits for the listener of the inner filter and answers with it until the jail has ended.
func (r *refusals) listen(from *control.Conn, f jail.Filter) error {
	files, err := from.Receive(&control.Listener{})
	if errors.Is(err, io.EOF) {
		return nil // jail-init never got so far, and says why elsewhere
	}
	if err != nil {
		return err
	}
	if len(files) != 1 {
		for _, file := range files {
			file.Close()
		}
		return fmt.Errorf("%d descriptors came as the listener", len(files))
	}
	defer files[0].Close()
	l, err := seccomp.NewListener(files[0], f)
	if err != nil {
		return err
	}
	r.listener.Store(l)
	return l.Serve()
}

// list is what was refused so far. Each call is counted before it is answered, so nothing is missing when the jail has ended.
func (r *refusals) list() []control.Refused {
	if l := r.listener.Load(); l != nil {
		return l.Refused()
	}
	return nil
}
