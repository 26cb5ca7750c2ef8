//go:build !agents

package main

import (
	"context"
	"errors"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/runners"
	wasiguest "github.com/jail-sandbox/jail/runners/wasi/guest"
)

// warm does nothing: no run of this program needs more than its module.
func warm() {}

// tidy does nothing: the process ends with its tool.
func tidy() {}

// hostAgent always fails. Only the program that is built with the tag agents can host agents, so
// that no other jail contains a database engine.
func hostAgent(context.Context, runners.Order, *control.Conn, [][]byte, *wasiguest.Loaded,
	*wasiguest.Proxy) (int, runners.Answer) {
	return failureCode, runners.FailureAnswer(nil,
		errors.New("this jail-init hosts no agents; jail-init-agent does"))
}
