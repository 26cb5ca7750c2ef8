package main

import (
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/runners"
	native "github.com/jail-sandbox/jail/runners/native/guest"
	wasiguest "github.com/jail-sandbox/jail/runners/wasi/guest"
)

// runNative runs a program of the host. Meanwhile the control socket carries only sizes of its
// terminal.
func runNative(order runners.Order, conn *control.Conn, door *wasiguest.Door) (int,
	runners.Answer) {
	sizes := func() (size runners.Terminal, err error) {
		files, err := conn.ReceiveMost(&size, maxSize)
		for _, f := range files {
			f.Close()
		}
		return size, err
	}
	var way native.Door
	if door != nil {
		way = door
	}
	report, err := native.Run(order, sizes, way)
	if err != nil {
		return failureCode, runners.FailureAnswer(&report, err)
	}
	return report.ExitCode, runners.Answer{Report: &report}
}

// maxSize bounds the message with a terminal size, in bytes.
const maxSize = 4 << 10
