package main

import (
	"fmt"
	"os"
	"runtime/debug"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/runc"
	"github.com/jail-sandbox/jail/jail/streams"
)

// awaitOuter waits until jail-init has restricted itself. A runtime that failed has exit codes of its
// own, which must not be taken for those of a tool.
func awaitOuter(r *refusals, jail *runc.Jail, toInit *control.Conn) error {
	<-r.settled
	if r.begun() {
		return nil
	}
	var unable control.Unable
	if _, err := toInit.Receive(&unable); err == nil && unable.Failure != "" {
		return &runc.LayerError{Layer: unable.Layer, Err: fmt.Errorf("%s", unable.Failure)}
	}
	return &runc.LayerError{Layer: "outer", Err: fmt.Errorf(
		"the runtime ended before the jail stood%s", jail.Explain())}
}

// serveStreams answers for the proxy of the run over one socket, whose other end it returns. From
// then on this process collects garbage, which it does not as long as it only serves one jail: what
// the streams carry would fill the memory of the host.
func serveStreams(proxy *os.File) (*os.File, error) {
	debug.SetGCPercent(100)
	own, inside, err := control.Pair("streams")
	if err != nil {
		return nil, err
	}
	go func() {
		// The jail has ended, or said what is no stream: it has no network then.
		_ = streams.Serve(own.File(), proxy)
	}()
	return inside, nil
}
