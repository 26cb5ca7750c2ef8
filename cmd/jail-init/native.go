package main

import (
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/runners"
	native "github.com/jail-sandbox/jail/runners/native/guest"
	wasiguest "github.com/jail-sandbox/jail/runners/wasi/guest"
)

// runNative runs a program of the host. Meanwhile the control socket carries only sizes of its
// terminal.
func runNative(order runners.Order, conn *control.Conn,
	proxy *wasiguest.Proxy) (int, runners.Answer) {
	sizes := func() (size runners.Terminal, err error) {
		files, err := conn.ReceiveMost(&size, maxSize)
		for _, f := range files {
			f.Close()
		}
		return size, err
	}
	// A nil *Proxy in an interface would not compare equal to nil.
	var opener native.Proxy
	if proxy != nil {
		opener = proxy
	}
	report, err := native.Run(order, sizes, opener)
	if err != nil {
		return failureCode, runners.FailureAnswer(&report, err)
	}
	return report.ExitCode, runners.Answer{Report: &report}
}

// maxSize bounds the message with a terminal size, in bytes.
const maxSize = 4 << 10
